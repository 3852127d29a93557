"""Requests of all kinds at once; each outcome is told by what it was and whether it is right."""

import asyncio
import json
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import httpx

from ops.bench.chaos.catalogue import Question, bad_body
from ops.bench.chaos.house import House

Answer = tuple[str, ...]  # the text of every choice
# What a death, or a server that is full, may make of a request.
EXCUSED = {"worker_lost", "not_ready", "request_fenced", "image_fenced", "out_of_memory"}
BUSY = {"overloaded"}
LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    kind: str  # whole, stream, leaver or bad
    verdict: str  # right, refused as it should be, or an error's code
    begun_at: float  # monotonic seconds
    ended_at: float
    fault: str = ""  # why this must not be; empty where it may


@dataclass(slots=True)
class Traffic:
    """Keeps a number of requests in flight. Owned by the run."""

    house: House
    questions: Sequence[Question]
    references: Mapping[str, Answer]
    chance: random.Random
    outcomes: list[Outcome] = field(default_factory=list)

    async def run(self, num_callers: int, seconds: float) -> None:
        """Ask for so long; all requests have ended when this returns."""
        limit = time.monotonic() + seconds
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=8)
        async with httpx.AsyncClient(
            timeout=LIMIT_SECONDS, limits=limits, trust_env=False
        ) as client:
            await asyncio.gather(*(self._keep_asking(client, limit) for _ in range(num_callers)))

    async def _keep_asking(self, client: httpx.AsyncClient, limit: float) -> None:
        while time.monotonic() < limit:
            kind = self.chance.choices(("whole", "stream", "leaver", "bad"), (6, 6, 2, 1))[0]
            begun_at = time.monotonic()
            try:
                async with asyncio.timeout(LIMIT_SECONDS):
                    verdict, fault = await self._ask(client, kind)
            except TimeoutError:
                verdict, fault = "hung", f"no end within {LIMIT_SECONDS:g} s"
            except httpx.HTTPError as error:
                verdict = type(error).__name__
                fault = f"{verdict}: {error}"
            self.outcomes.append(Outcome(kind, verdict, begun_at, time.monotonic(), fault))
            if verdict in EXCUSED | BUSY:
                await asyncio.sleep(0.2)

    async def _ask(self, client: httpx.AsyncClient, kind: str) -> tuple[str, str]:
        url = f"{self.house.url}/v1/chat/completions"
        if kind == "bad":
            response = await client.post(url, content=bad_body(self.house.model, self.chance))
            return ("refused", "") if response.status_code == 400 else _refusal(response)
        question = self.chance.choice(self.questions)
        nonce = self.chance.randrange(10**9) if self.chance.random() < 0.5 else None
        body = question.body(self.house.model, streamed=kind != "whole", nonce=nonce)
        if kind == "leaver":
            return await self._leave(client, url, body)
        wanted = self.references[question.name]
        if kind == "whole":
            response = await client.post(url, content=body)
            if response.status_code != httpx.codes.OK:
                return _refusal(response)
            return _compare(read_whole(response), wanted)
        async with client.stream("POST", url, content=body) as response:
            if response.status_code != httpx.codes.OK:
                await response.aread()
                return _refusal(response)
            return await _read_stream(response, wanted)

    async def _leave(self, client: httpx.AsyncClient, url: str, body: bytes) -> tuple[str, str]:
        """Go away at some moment: before the answer, or in it."""
        seconds = self.chance.random() ** 2
        try:
            async with asyncio.timeout(seconds), client.stream("POST", url, content=body) as told:
                async for _ in told.aiter_bytes():
                    pass
        except TimeoutError:
            return "left", ""
        return "left late", ""


def read_whole(response: httpx.Response) -> Answer:
    """The texts of a body."""
    choices = sorted(response.json()["choices"], key=lambda choice: int(choice["index"]))
    return tuple(str(choice["message"]["content"]) for choice in choices)


async def _read_stream(response: httpx.Response, wanted: Answer) -> tuple[str, str]:
    """The verdict on a stream, which has one end, and behind an error nothing but that."""
    texts = [""] * len(wanted)
    ends, error = 0, ""
    async for line in response.aiter_lines():
        if not line.startswith("data: "):
            continue
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            ends += 1
            continue
        frame = json.loads(data)
        if error or ends:
            return "broken", f"a frame came behind {'the end' if ends else 'an error'}"
        error = frame.get("error", {}).get("code", "")
        for choice in frame.get("choices", ()):
            texts[choice["index"]] += choice["delta"].get("content") or ""
    if ends != 1:
        return "broken", f"the stream had {ends} ends"
    if error:
        return error, "" if error in EXCUSED else f"the stream ended with {error}"
    return _compare(tuple(texts), wanted)


def _refusal(response: httpx.Response) -> tuple[str, str]:
    try:
        code = str(response.json()["error"]["code"])
    except (ValueError, KeyError):
        return "broken", f"{response.status_code} without an error body"
    is_allowed = code in EXCUSED | BUSY
    return code, "" if is_allowed else f"{response.status_code} {response.text[:200]}"


def _compare(answer: Answer, wanted: Answer) -> tuple[str, str]:
    if answer == wanted:
        return "right", ""
    return "wrong", f"{answer!r:.200} is not {wanted!r:.200}"
