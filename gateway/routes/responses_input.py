"""Items of a response's input in, messages as chat knows them out, and the way back for names."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import BadRequest
from gateway.schemas.edge import echo

_TEXT_TYPES = ("input_text", "output_text")
_PART_TYPES = ("input_text", "input_image", "output_text", "refusal")
_ITEM_TYPES = ("message", "reasoning", "function_call", "function_call_output")
# What an item tells of itself; it changes no prompt.
_ITEM_FACTS = frozenset(("id", "phase", "status", "type", "caller", "namespace"))
_PART_FACTS = frozenset(("annotations", "logprobs"))
_IN_MESSAGES = re.compile(r"messages\[(\d+)\](\.content)?(.*)")
_IN_CALLS = re.compile(r"\.tool_calls\[(\d+)\](?:\.function)?(.*)")
# What chat calls otherwise, by its beginning; longer ones first.
_NAMES = {
    "response_format.json_schema": "text.format",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "logprobs": "top_logprobs",
    "messages": "input",
}


_NAMES_INSIDE = {
    ".image_url.url": ".image_url",
    ".image_url.detail": ".detail",
    ".tool_call_id": ".call_id",
}


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a message comes from: the path of its item, and of its content there."""

    item: str
    content: str
    calls: list[str] = field(default_factory=list)  # paths of the items that are its calls


class Conversation:
    """The messages of one response's input. Owned by the request's task."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._places: list[_Place] = []
        self._thoughts = ""  # of the assistant, who says or calls something next

    def add_instructions(self, text: str) -> None:
        """What the system says, before all else."""
        self._add({"role": "system", "content": text}, "instructions", "")

    def add_input(self, given: str | list[Any]) -> None:
        """The caller's input.

        Raises:
            BadRequest: an item or a part of it is of no type that is served.
        """
        if isinstance(given, str):
            self._add({"role": "user", "content": given}, "input", "")
            return
        for index, item in enumerate(given):
            self._add_item(item, f"input[{index}]")

    def blame(self, param: str) -> str:
        """The name that a field of the chat request has in the response's body."""
        found = _IN_MESSAGES.fullmatch(param)
        if found:
            place = self._places[int(found[1])]
            call = _IN_CALLS.fullmatch(found[3])
            if call:
                return place.calls[int(call[1])] + call[2].replace(".id", ".call_id")
            return place.item + (place.content if found[2] else "") + _in_part(found[3])
        for name, own in _NAMES.items():
            if re.match(rf"{re.escape(name)}(?![a-z_])", param):
                return own + param.removeprefix(name)
        return param.replace(".function.", ".", 1) if param.startswith("tool") else param

    def _add(self, message: dict[str, Any], item: str, content: str) -> None:
        if self._thoughts and message.get("role") == "assistant":
            message["reasoning_content"] = self._thoughts
        self._thoughts = ""
        self.messages.append(message)
        self._places.append(_Place(item, content))

    def _add_item(self, item: Any, path: str) -> None:
        if not isinstance(item, dict):
            raise BadRequest(f"{path}: an item should be an object", param=path)
        kind = item.get("type") or "message"
        if kind not in _ITEM_TYPES:
            raise _unsupported(f"{path}.type", "item type", kind, _ITEM_TYPES)
        rest = {name: value for name, value in item.items() if name not in _ITEM_FACTS}
        if kind == "message":
            self._add(_message(rest, path), path, ".content")
        elif kind == "reasoning":
            self._thoughts += _thoughts(item, path)
        elif kind == "function_call":
            self._add_call(rest, path)
        else:
            output = _content(rest.pop("output", None), f"{path}.output")
            message = {"tool_call_id": rest.pop("call_id", None)} | rest
            self._add({"role": "tool", "content": output} | message, path, ".output")

    def _add_call(self, rest: dict[str, Any], path: str) -> None:
        """A call belongs to what the assistant said just before it, other calls included."""
        function = {"name": rest.pop("name", None), "arguments": rest.pop("arguments", None)}
        call = {"id": rest.pop("call_id", None), "type": "function", "function": function} | rest
        last = self.messages[-1] if self.messages else {}
        if last.get("role") != "assistant":
            self._add({"role": "assistant", "content": None}, path, "")
        self.messages[-1].setdefault("tool_calls", []).append(call)
        self._places[-1].calls.append(path)


def _thoughts(item: Mapping[str, Any], path: str) -> str:
    """The text of a reasoning item; where there is none, what sums it up."""
    for name in ("content", "summary"):
        parts = item.get(name) or []
        if not isinstance(parts, list) or not all(
            isinstance(part, dict) and isinstance(part.get("text"), str) for part in parts
        ):
            raise BadRequest(
                f"{path}.{name}: it should be a list of parts with text", param=f"{path}.{name}"
            )
        if parts:
            return "".join(part["text"] for part in parts)
    return ""


def _message(rest: Mapping[str, Any], path: str) -> dict[str, Any]:
    if "content" not in rest:
        return dict(rest)
    return {**rest, "content": _content(rest["content"], f"{path}.content")}


def _content(given: Any, path: str) -> Any:
    if not isinstance(given, list):
        return given
    return [_part(part, f"{path}[{index}]") for index, part in enumerate(given)]


def _part(given: Any, path: str) -> Any:
    if not isinstance(given, dict):
        return given
    kind = given.get("type")
    if kind not in _PART_TYPES:
        raise _unsupported(f"{path}.type", "part type", kind, _PART_TYPES)
    rest = {name: value for name, value in given.items() if name not in _PART_FACTS}
    if kind in _TEXT_TYPES:
        return rest | {"type": "text"}
    if kind == "refusal":
        return {"type": "text", "text": rest.pop("refusal", None)} | rest | {"type": "text"}
    if rest.pop("file_id", None) is not None:
        raise BadRequest(
            f"{path}.file_id is not supported here; send the image as image_url",
            param=f"{path}.file_id",
            code="unsupported_parameter",
        )
    return _image(rest)


def _image(rest: dict[str, Any]) -> dict[str, Any]:
    detail, url = rest.pop("detail", None), rest.pop("image_url", None)
    if isinstance(url, str):
        url = {"url": url}
    if isinstance(url, dict) and detail is not None:
        url = url | {"detail": detail}
    return rest | {"type": "image_url", "image_url": url}


def _in_part(rest: str) -> str:
    """Here an image's address and detail lie beside its type, in chat one level deeper."""
    for name, own in _NAMES_INSIDE.items():
        rest = rest.replace(name, own, 1)
    return rest


def _unsupported(path: str, what: str, given: Any, known: tuple[str, ...]) -> BadRequest:
    return BadRequest(
        f"{path}: {what} {echo(given)} is not supported; supported are {', '.join(known)}",
        param=path,
        code="unsupported_value",
    )
