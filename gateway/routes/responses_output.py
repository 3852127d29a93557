"""Deltas of one answer in; the items of a response's output, and the events that tell of them, out.

Each item is opened, grows and is closed before the next one begins.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

from gateway.answers.answer import Piece
from gateway.answers.deltas import Argued, Called, Delta, Said, Thought
from gateway.answers.token_log import Entry

Event = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]


class Item(ABC):
    """One item of an output. Owned by the output."""

    def __init__(self, item_id: str, index: int) -> None:
        self._place: dict[str, Any] = {"item_id": item_id, "output_index": index}
        self._status: Status = "in_progress"
        self._text = ""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """The item as it is now."""

    @abstractmethod
    def open(self) -> Iterator[Event]:
        """The item while it is empty."""

    @abstractmethod
    def push(self, text: str, entries: list[Entry]) -> Iterator[Event]:
        """More text, and the likelihoods of its tokens if they are told."""

    @abstractmethod
    def close(self, status: Status) -> Iterator[Event]:
        """All of it once more."""

    def _event(self, kind: str, **fields: Any) -> Event:
        return {"type": f"response.{kind}", **self._place, **fields}

    def _item_event(self, what: str, **fields: Any) -> Event:
        item, index = self.body() | fields, self._place["output_index"]
        return {"type": f"response.output_item.{what}", "output_index": index, "item": item}


class TextItem(Item):
    """What is said to the caller, or thought; one part of content."""

    def __init__(self, item_id: str, index: int, is_thought: bool, is_logged: bool) -> None:
        super().__init__(item_id, index)
        self._place["content_index"] = 0
        self._kind = "reasoning_text" if is_thought else "output_text"
        self._entries: list[Entry] | None = [] if is_logged and not is_thought else None

    def open(self) -> Iterator[Event]:
        yield self._item_event("added", content=[])
        yield self._event("content_part.added", part=self._part())

    def push(self, text: str, entries: list[Entry]) -> Iterator[Event]:
        self._text += text
        told = list(map(_likelihood, entries))
        if self._entries is not None:
            self._entries += told
        if text or told:
            yield self._event(f"{self._kind}.delta", delta=text, **self._logged(told))

    def close(self, status: Status) -> Iterator[Event]:
        self._status = status
        yield self._event(f"{self._kind}.done", text=self._text, **self._logged(self._entries))
        yield self._event("content_part.done", part=self._part())
        yield self._item_event("done")

    def body(self) -> dict[str, Any]:
        own: dict[str, Any] = {"type": "message", "role": "assistant"}
        if self._is_thought:
            own = {"type": "reasoning", "summary": []}
        rest = {"status": self._status, "content": [self._part()]}
        return {"id": self._place["item_id"], **own, **rest}

    @property
    def _is_thought(self) -> bool:
        return self._kind == "reasoning_text"

    def _logged(self, entries: list[Entry] | None) -> dict[str, Any]:
        """Events of what is said have the field in any case, those of thoughts never."""
        return {} if self._is_thought else {"logprobs": list(entries or ())}

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": self._kind, "text": self._text}
        if not self._is_thought:
            part["annotations"] = []
        return part if self._entries is None else part | {"logprobs": list(self._entries)}


class CallItem(Item):
    """A call of a function; its text is the arguments."""

    def __init__(self, item_id: str, index: int, called: Called) -> None:
        super().__init__(item_id, index)
        self._called = called

    def open(self) -> Iterator[Event]:
        yield self._item_event("added")

    def push(self, text: str, entries: list[Entry]) -> Iterator[Event]:
        self._text += text
        yield self._event("function_call_arguments.delta", delta=text)

    def close(self, status: Status) -> Iterator[Event]:
        self._status = status
        told = {"name": self._called.name, "arguments": self._text}
        yield self._event("function_call_arguments.done", **told)
        yield self._item_event("done")

    def body(self) -> dict[str, Any]:
        return {
            "id": self._place["item_id"],
            "type": "function_call",
            "status": self._status,
            "call_id": self._called.id,
            "name": self._called.name,
            "arguments": self._text,
        }


class Output:
    """All items of one answer, in order. Owned by the request's task."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._items: list[Item] = []
        self._kind: type[Delta] | None = None  # of the delta that opened the last item

    def bodies(self) -> list[dict[str, Any]]:
        """Every item as it is now."""
        return [item.body() for item in self._items]

    def take(self, piece: Piece) -> Iterator[Event]:
        """The next of the answer; its end closes the last item."""
        entries = piece.logprobs
        for delta in piece.deltas:
            yield from self._turn_to(delta, is_logged=entries is not None)
            if not isinstance(delta, Called):
                told = entries if isinstance(delta, Said) else None
                entries = [] if told else entries  # all of them come with the first words
                yield from self._items[-1].push(delta.text, told or [])
        if piece.reason is not None:
            if not self._items:
                yield from self._turn_to(Said(""), is_logged=entries is not None)
            yield from self._items[-1].close(status_of(piece.reason))

    def _turn_to(self, delta: Delta, *, is_logged: bool) -> Iterator[Event]:
        """Open the item that a delta belongs to, unless it is open."""
        kind = Called if isinstance(delta, Argued) else type(delta)
        if kind is self._kind and not isinstance(delta, Called):
            return
        if self._items:
            yield from self._items[-1].close("completed")
        self._kind = kind
        self._items.append(self._new_item(delta, is_logged))
        yield from self._items[-1].open()

    def _new_item(self, delta: Delta, is_logged: bool) -> Item:
        index = len(self._items)
        name = f"{self._job_id}_{index}"
        if isinstance(delta, Called):
            return CallItem(f"fc_{name}", index, delta)
        is_thought = isinstance(delta, Thought)
        return TextItem(f"{'rs' if is_thought else 'msg'}_{name}", index, is_thought, is_logged)


def status_of(reason: str) -> Status:
    """What becomes of an answer that ended for a reason."""
    return "incomplete" if reason == "length" else "completed"


def _likelihood(entry: Entry) -> Entry:
    """An entry as this route has it: bytes are always a list."""
    told = entry | {"bytes": entry["bytes"] or []}
    if "top_logprobs" in entry:
        told["top_logprobs"] = list(map(_likelihood, entry["top_logprobs"]))
    return told
