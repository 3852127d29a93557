"""Deltas, ends and usage of an answer in; OpenAI chunks as server-sent events, or one body, out."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway.answers.deltas import Delta, Said, message

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; an image's tokens and those found in the cache are prompt tokens."""

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int
    cached_tokens: int
    thought_tokens: int = 0  # of the completion tokens

    def body(self) -> dict[str, Any]:
        """OpenAI's usage object."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {
                "cached_tokens": self.cached_tokens,
                "image_tokens": self.image_tokens,
            },
            "completion_tokens_details": {"reasoning_tokens": self.thought_tokens},
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer, whole."""

    deltas: Sequence[Delta]
    reason: str
    logprobs: list[dict[str, Any]] | None  # None unless they were asked for

    def body(self, index: int) -> dict[str, Any]:
        """OpenAI's choice object."""
        return {
            "index": index,
            "message": message(self.deltas),
            "logprobs": _logprobs(self.logprobs),
            "finish_reason": self.reason,
        }


class Frames:
    """Writes the frames of one request; all of them carry the same id, model and second.

    In a stream, for each choice: `role` once, `deltas` any number of times, `finish` once; those
    of several choices may alternate. Then `usage` if asked for, then `DONE`.
    """

    def __init__(self, request_id: str, model: str) -> None:
        self._head = {
            "id": f"chatcmpl-{request_id}",
            "created": int(time.time()),
            "model": model,
        }

    def role(self, index: int) -> bytes:
        """The chunk that opens the assistant's message."""
        return self._choice(index, {"role": "assistant", "content": ""})

    def deltas(
        self,
        index: int,
        deltas: Iterable[Delta],
        logprobs: list[dict[str, Any]] | None = None,
    ) -> bytes:
        """A chunk for each delta; the entries of all that is said come with its first."""
        frames = []
        for delta in deltas:
            entries, logprobs = (logprobs, None) if isinstance(delta, Said) else (None, logprobs)
            frames.append(self._choice(index, delta.body(), entries))
        return b"".join(frames)

    def finish(self, index: int, reason: str) -> bytes:
        """The chunk that ends the message."""
        return self._choice(index, {}, reason=reason)

    def usage(self, usage: Usage) -> bytes:
        """The chunk after the end, without choices."""
        return self._chunk(choices=[], usage=usage.body())

    def completion(self, choices: Sequence[Choice], usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice.body(index) for index, choice in enumerate(choices)],
            "usage": usage.body(),
        }

    def _choice(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: list[dict[str, Any]] | None = None,
        reason: str | None = None,
    ) -> bytes:
        choice = {
            "index": index,
            "delta": delta,
            "logprobs": _logprobs(logprobs),
            "finish_reason": reason,
        }
        return self._chunk(choices=[choice])

    def _chunk(self, **fields: Any) -> bytes:
        return frame({**self._head, "object": "chat.completion.chunk", **fields})


def _logprobs(entries: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if entries is None else {"content": entries, "refusal": None}


def frame(value: dict[str, Any]) -> bytes:
    """One server-sent event without a name."""
    return b"data: " + orjson.dumps(value) + b"\n\n"
