"""A server for the bench's tests: streams answers with known delays and notes what it was sent."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

FIRST_DELAY_SECONDS = 0.04
GAP_SECONDS = 0.015
NUM_TOKENS = 3

# Model names that misbehave.
REFUSES = "refuses"
BREAKS_OFF = "breaks off"
FAILS_IN_STREAM = "fails in the stream"
NO_USAGE = "no usage"
INSTANT = "instant"


@dataclass(slots=True)
class Log:
    """What the server saw; written by its event loop, read by a test when all is answered."""

    bodies: list[dict[str, Any]] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0


@dataclass(frozen=True, slots=True)
class BenchServer:
    """A running server."""

    root: str
    log: Log

    @property
    def base_url(self) -> str:
        """What a target is given."""
        return f"{self.root}/v1"


def _frame(value: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


def _delta(text: str | None = None, finish_reason: str | None = None) -> dict[str, Any]:
    delta = {"role": "assistant", "content": ""} if text is None else {"content": text}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


async def _stream(model: str, log: Log) -> AsyncIterator[bytes]:
    slow = model != INSTANT
    yield _frame(_delta())
    await asyncio.sleep(FIRST_DELAY_SECONDS if slow else 0)
    yield _frame(_delta("token "))
    for _ in range(NUM_TOKENS - 1):
        await asyncio.sleep(GAP_SECONDS if slow else 0)
        yield _frame(_delta("token "))
    if model == FAILS_IN_STREAM:
        yield _frame({"error": {"message": "the worker died", "code": "worker_lost"}})
    elif model != BREAKS_OFF:
        yield _frame(_delta("", "length"))
    if model != NO_USAGE:
        usage = {"prompt_tokens": 7, "completion_tokens": NUM_TOKENS + 1}
        yield _frame({"choices": [], "usage": usage})
    log.in_flight -= 1
    yield b"data: [DONE]\r\n\r\n"


def _make_app(log: Log) -> Starlette:
    async def complete(request: Request) -> Response:
        body = json.loads(await request.body())
        log.bodies.append(body)
        if body["model"] == REFUSES:
            return PlainTextResponse("no such model", status_code=404)
        log.in_flight += 1
        log.most_in_flight = max(log.most_in_flight, log.in_flight)
        return StreamingResponse(_stream(body["model"], log), media_type="text/event-stream")

    async def metrics(request: Request) -> Response:
        seen = len(log.bodies)
        return PlainTextResponse(f'bench_images_encoded_total{{worker="0"}} {seen}\n')

    return Starlette(
        routes=[
            Route("/v1/chat/completions", complete, methods=["POST"]),
            Route("/metrics", metrics),
        ]
    )


@contextmanager
def running_server() -> Iterator[BenchServer]:
    """Serve on a free loopback port until the block ends."""
    log = Log()
    config = uvicorn.Config(_make_app(log), log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.005)
        yield BenchServer(f"http://127.0.0.1:{port}", log)
        server.should_exit = True
        thread.join()
