"""One request: a target and a body in, an `Answer` with its times or a `Failure` out."""

import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx

from ops.bench.workload import Content, Workload

# Fields outside the schema of some servers; a target marked `plain` does not get them.
EXTENSIONS = {"ignore_eos": True, "stream_options": {"include_usage": True}}
MAX_FAILURE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Target:
    """One server under test."""

    name: str
    base_url: str  # ends in /v1
    model: str
    plain: bool = False
    pid: int | None = None  # its first process, where it runs on this machine
    api_key: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """One complete answer. Times are seconds since the request was due."""

    first_token_seconds: float
    total_seconds: float
    gaps_seconds: tuple[float, ...]  # between chunks with text
    num_tokens: int  # by the server's usage, else the number of chunks with text
    num_chunks: int
    num_prompt_tokens: int  # 0 without usage
    has_usage: bool
    finish_reason: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no complete answer."""

    reason: str


Outcome = Answer | Failure


class BrokenAnswerError(Exception):
    """The server's answer is an error, or no complete stream."""


def make_body(target: Target, content: Content, workload: Workload) -> bytes:
    """The JSON body of one streamed, greedy request."""
    body: dict[str, Any] = {
        "model": target.model,
        "messages": [{"role": "user", "content": content}],
        "stream": True,
        "max_tokens": workload.max_tokens,
        "temperature": 0.0,
    }
    return json.dumps(body if target.plain else body | EXTENSIONS).encode()


async def ask(
    client: httpx.AsyncClient, target: Target, body: bytes, due_at: float | None = None
) -> Outcome:
    """Send one request and read its stream to the end; refusal and breakage become a `Failure`.

    `due_at` (perf_counter seconds) is when the request should have been sent: waiting for a
    free place then counts as the server's time. Absent: now.
    """
    started_at = time.perf_counter() if due_at is None else due_at
    headers = {"Content-Type": "application/json"}
    if target.api_key is not None:
        headers["Authorization"] = f"Bearer {target.api_key}"
    url = f"{target.base_url}/chat/completions"
    try:
        async with client.stream("POST", url, content=body, headers=headers) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                raise BrokenAnswerError(f"{response.status_code} {response.text}")
            return await _read_answer(response, started_at)
    except (httpx.HTTPError, BrokenAnswerError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        return Failure(reason[:MAX_FAILURE_CHARACTERS])


@dataclass(slots=True)
class _Reading:
    """What a stream has shown so far; owned by `_read_answer`."""

    text_at: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = ""

    def take(self, frame: dict[str, Any], arrived_at: float) -> None:
        if frame.get("error"):
            raise BrokenAnswerError(f"error in the stream: {frame['error']}")
        self.usage = frame.get("usage") or self.usage
        for choice in frame.get("choices") or ():
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            if (choice.get("delta") or {}).get("content"):
                self.text_at.append(arrived_at)


async def _read_answer(response: httpx.Response, started_at: float) -> Answer:
    reading = _Reading()
    async with aclosing(_frames(response)) as frames:
        async for arrived_at, frame in frames:
            reading.take(frame, arrived_at)
    ended_at = time.perf_counter()
    if not reading.finish_reason:
        raise BrokenAnswerError("the stream ended without a finish_reason")
    return _answer(reading, started_at, ended_at)


async def _frames(response: httpx.Response) -> AsyncGenerator[tuple[float, dict[str, Any]], None]:
    """Each server-sent event's JSON with the time its last byte arrived, up to [DONE] or the end.

    What follows [DONE] is read too, so that the connection can be used again.
    """
    pending = b""
    done = False
    async for chunk in response.aiter_bytes():
        arrived_at = time.perf_counter()
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            data = line.removeprefix(b"data:").strip()
            done = done or data == b"[DONE]"
            if line.startswith(b"data:") and not done:
                yield arrived_at, json.loads(data)


def _answer(reading: _Reading, started_at: float, ended_at: float) -> Answer:
    text_at = reading.text_at
    num_tokens = reading.usage.get("completion_tokens")
    return Answer(
        # No text at all happens where every token decodes to nothing.
        first_token_seconds=(text_at[0] if text_at else ended_at) - started_at,
        total_seconds=ended_at - started_at,
        gaps_seconds=tuple(later - earlier for earlier, later in pairwise(text_at)),
        num_tokens=len(text_at) if num_tokens is None else num_tokens,
        num_chunks=len(text_at),
        num_prompt_tokens=reading.usage.get("prompt_tokens") or 0,
        has_usage=bool(reading.usage),
        finish_reason=reading.finish_reason,
    )
