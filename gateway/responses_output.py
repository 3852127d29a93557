"""Pieces of one answer in; the items of a response's output, and the events that tell of them, out.

Each item is opened, grows and is closed before the next one begins.
"""

from collections.abc import Iterator
from typing import Any

from gateway.token_log import Entry

Event = dict[str, Any]


class MessageItem:
    """What is said to the caller. Owned by the output."""

    def __init__(self, item_id: str, index: int) -> None:
        self._place = {"item_id": item_id, "output_index": index, "content_index": 0}
        self._status = "in_progress"
        self._text = ""
        self._entries: list[Entry] = []
        self._is_logged = False

    def open(self) -> Iterator[Event]:
        """The item and its one part, both empty."""
        yield _item_event("added", self._place, self.body() | {"content": []})
        yield {"type": "response.content_part.added", **self._place, "part": self._part()}

    def push(self, text: str, entries: list[Entry] | None) -> Iterator[Event]:
        """More text, and the likelihoods of its tokens if they are told."""
        self._text += text
        self._is_logged = entries is not None
        told = list(map(_likelihood, entries or ()))
        self._entries += told
        if text or told:
            kind = "response.output_text.delta"
            yield {"type": kind, **self._place, "delta": text, "logprobs": told}

    def close(self, status: str) -> Iterator[Event]:
        """All of it once more."""
        self._status = status
        done = {"text": self._text, "logprobs": self._entries}
        yield {"type": "response.output_text.done", **self._place, **done}
        yield {"type": "response.content_part.done", **self._place, "part": self._part()}
        yield _item_event("done", self._place, self.body())

    def body(self) -> dict[str, Any]:
        """The item as it is now."""
        return {
            "id": self._place["item_id"],
            "type": "message",
            "role": "assistant",
            "status": self._status,
            "content": [self._part()],
        }

    def _part(self) -> dict[str, Any]:
        part: dict[str, Any] = {"type": "output_text", "text": self._text, "annotations": []}
        return part | {"logprobs": list(self._entries)} if self._is_logged else part


def _item_event(what: str, place: dict[str, Any], item: dict[str, Any]) -> Event:
    kind = f"response.output_item.{what}"
    return {"type": kind, "output_index": place["output_index"], "item": item}


def _likelihood(entry: Entry) -> Entry:
    """An entry as this route has it: bytes are always a list."""
    told = entry | {"bytes": entry["bytes"] or []}
    if "top_logprobs" in entry:
        told["top_logprobs"] = list(map(_likelihood, entry["top_logprobs"]))
    return told
