"""Events of one answer in, deltas as OpenAI counts and names them out."""

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from workers.families.answers import (
    CallArguments,
    CallBegun,
    CallEnded,
    Event,
    Thoughts,
    Words,
)


@dataclass(frozen=True, slots=True)
class Said:
    """The next text for the caller."""

    text: str

    def body(self) -> dict[str, Any]:
        """OpenAI's delta object."""
        return {"content": self.text}


@dataclass(frozen=True, slots=True)
class Thought:
    """The next text of a thought."""

    text: str

    def body(self) -> dict[str, Any]:
        """The delta object that servers of thinking models agree on."""
        return {"reasoning_content": self.text}


@dataclass(frozen=True, slots=True)
class Called:
    """A call begins; calls of one answer are counted from 0."""

    index: int
    id: str
    name: str

    def body(self) -> dict[str, Any]:
        """OpenAI's delta object."""
        function = {"name": self.name, "arguments": ""}
        call = {"index": self.index, "id": self.id, "type": "function", "function": function}
        return {"tool_calls": [call]}


@dataclass(frozen=True, slots=True)
class Argued:
    """The next piece of a call's arguments."""

    index: int
    text: str

    def body(self) -> dict[str, Any]:
        """OpenAI's delta object."""
        return {"tool_calls": [{"index": self.index, "function": {"arguments": self.text}}]}


Delta = Said | Thought | Called | Argued


class CallBook:
    """Numbers the calls of one answer and gives them ids. Owned by the request's task."""

    def __init__(self, max_calls: int | None) -> None:
        self._max_calls = max_calls
        self.num_calls = 0
        self.is_full = False  # the last call that is wanted has ended

    def enter(self, events: Iterable[Event]) -> list[Delta]:
        """Take the next events; those after the last call that is wanted are left out."""
        deltas: list[Delta] = []
        for event in events:
            if self.is_full:
                break
            match event:
                case Words(text=text):
                    deltas.append(Said(text))
                case Thoughts(text=text):
                    deltas.append(Thought(text))
                case CallBegun(name=name, id=own_id):
                    call_id = own_id or f"call_{secrets.token_hex(12)}"
                    deltas.append(Called(self.num_calls, call_id, name))
                    self.num_calls += 1
                case CallArguments(text=text):
                    deltas.append(Argued(self.num_calls - 1, text))
                case CallEnded():
                    self.is_full = self.num_calls == self._max_calls
        return deltas


def join(deltas: Iterable[Delta]) -> list[Delta]:
    """The same with neighbours of one kind made one."""
    joined: list[Delta] = []
    for delta in deltas:
        match joined[-1] if joined else None, delta:
            case Said(text=text), Said(text=more):
                joined[-1] = Said(text + more)
            case Thought(text=text), Thought(text=more):
                joined[-1] = Thought(text + more)
            case Argued(index=index, text=text), Argued(text=more):
                joined[-1] = Argued(index, text + more)
            case _:
                joined.append(delta)
    return joined


def message(deltas: Sequence[Delta]) -> dict[str, Any]:
    """OpenAI's message object of a whole answer; its content is null where nothing was said."""
    said = "".join(delta.text for delta in deltas if isinstance(delta, Said))
    thought = "".join(delta.text for delta in deltas if isinstance(delta, Thought))
    calls = [_call(delta, deltas) for delta in deltas if isinstance(delta, Called)]
    body: dict[str, Any] = {
        "role": "assistant",
        "content": said if said or not (thought or calls) else None,
        "refusal": None,
    }
    if thought:
        body["reasoning_content"] = thought
    if calls:
        body["tool_calls"] = calls
    return body


def _call(called: Called, deltas: Sequence[Delta]) -> dict[str, Any]:
    arguments = "".join(
        delta.text for delta in deltas if isinstance(delta, Argued) and delta.index == called.index
    )
    function = {"name": called.name, "arguments": arguments}
    return {"id": called.id, "type": "function", "function": function}
