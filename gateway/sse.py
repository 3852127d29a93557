"""Text, ends and usage of an answer in; OpenAI chunks as server-sent events, or one body, out."""

import time
from dataclasses import dataclass
from typing import Any

import orjson

DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request; an image's tokens and those found in the cache are prompt tokens."""

    prompt_tokens: int
    completion_tokens: int
    image_tokens: int
    cached_tokens: int

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
        }


class Frames:
    """Writes the frames of one answer; all of them carry the same id, model and second.

    In a stream: `role` once, `text` any number of times, `finish` once, `usage` if asked for,
    then `DONE`.
    """

    def __init__(self, request_id: str, model: str) -> None:
        self._head = {
            "id": f"chatcmpl-{request_id}",
            "created": int(time.time()),
            "model": model,
        }

    def role(self) -> bytes:
        """The chunk that opens the assistant's message."""
        return self._choice({"role": "assistant", "content": ""}, None)

    def text(self, text: str) -> bytes:
        """A chunk with the next text; nothing when there is none."""
        return self._choice({"content": text}, None) if text else b""

    def finish(self, reason: str) -> bytes:
        """The chunk that ends the message."""
        return self._choice({}, reason)

    def usage(self, usage: Usage) -> bytes:
        """The chunk after the end, without choices."""
        return self._chunk(choices=[], usage=usage.body())

    def completion(self, text: str, reason: str, usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text, "refusal": None},
                    "logprobs": None,
                    "finish_reason": reason,
                }
            ],
            "usage": usage.body(),
        }

    def _choice(self, delta: dict[str, str], reason: str | None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return self._chunk(choices=[choice])

    def _chunk(self, **fields: Any) -> bytes:
        return _frame({**self._head, "object": "chat.completion.chunk", **fields})


def error_frame(body: dict[str, Any]) -> bytes:
    """The frame that tells a failure after the stream has begun; `DONE` follows it."""
    return _frame(body)


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: " + orjson.dumps(value) + b"\n\n"
