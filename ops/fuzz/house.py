"""The whole gateway as one ASGI application, around a worker that answers at once; no sockets."""

import asyncio
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from starlette.types import Message, Scope

from config.settings import ImageSettings, ServerSettings, Settings, WorkerSettings
from config.workers import WorkerSpec
from gateway.app import build_app
from gateway.images.header import set_up_pillow
from gateway.server import Gateway
from gateway.start.memory import share_one_heap
from ops.fuzz.fleet import InlinePool
from ops.fuzz.images import LIMITS
from ops.fuzz.target import Wrong
from workers.pool import Pool

MAX_SECONDS = 20.0  # for one request
_SETTINGS = Settings(
    server=ServerSettings(log_level="error", max_body_bytes=1 << 20),
    workers=WorkerSettings(workers="cpu:vision+language"),
    images=ImageSettings(
        max_image_pixels=LIMITS.max_image_pixels,
        max_image_side=LIMITS.max_image_side,
        allow_tensor_inputs=True,
        # Nothing is fetched: nobody has this name.
        media_allowed_domains="nobody.invalid",
    ),
)


class _QuietGateway(Gateway):
    """Everything real but the worker."""

    def _make_pool(self, specs: tuple[WorkerSpec, ...]) -> Pool:
        vocabulary = self._checkpoint.vocabulary()
        self.inline = InlinePool(len(vocabulary.spellings))
        self.inline.on_event = self._on_event
        return cast("Pool", self.inline)

    def app(self) -> Any:
        """What uvicorn would be given."""
        return build_app(self._services)

    async def leave(self) -> None:
        """End what stands beside it."""
        await self._services.grammar_checks.close()
        self.inline.close()

    def held(self) -> dict[str, float]:
        """What is held though nothing is in work; what is kept to be shown again does not count."""
        services = self._services
        (place,) = self.inline.places
        counted = {
            "requests": services.admission.num_running,
            "requests with images": services.admission.num_with_images,
            "bytes": services.admission.num_bytes,
            "pixels": services.admission.num_pixels,
            "tokens": services.admission.num_tokens,
            "jobs": services.dispatcher.num_jobs,
            "flights": services.encoder.num_flights,
            "pins": services.store.num_pins,
            "arena bytes": place.num_bytes_used - services.store.idle_bytes(0),
        }
        return {name: number for name, number in counted.items() if number}


@dataclass(slots=True)
class Reply:
    """What the application sent."""

    status: int = 0
    body: bytearray = field(default_factory=bytearray)
    num_starts: int = 0
    num_ends: int = 0

    async def take(self, message: Message) -> None:
        """Called by the application."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.num_starts += 1
        else:
            self.body += message["body"]
            self.num_ends += not message.get("more_body", False)


class House:
    """Asks one request at a time. Owned by the target."""

    def __init__(self) -> None:
        share_one_heap()  # as whoever serves does
        set_up_pillow(_SETTINGS.images)
        self._runner = asyncio.Runner()
        with socket.socket() as unused:
            self._gateway = _QuietGateway(_SETTINGS, unused, time.monotonic())
        self._app = self._gateway.app()

    def post(self, path: str, body: bytes) -> Reply:
        """The answer to a request.

        Raises:
            Wrong: there was none in time, or more than one, or something is still held.
        """
        reply = self._runner.run(self._post(path, [body]))
        if (reply.num_starts, reply.num_ends) != (1, 1):
            raise Wrong(f"{reply.num_starts} beginnings and {reply.num_ends} ends of an answer")
        if held := self._gateway.held():
            raise Wrong(f"something is still held: {held}")
        return reply

    async def _post(self, path: str, pieces: Iterable[bytes]) -> Reply:
        waiting = [{"type": "http.request", "body": each, "more_body": False} for each in pieces]
        reply, forever = Reply(), asyncio.Event()

        async def receive() -> Message:
            if not waiting:
                await forever.wait()
            return waiting.pop(0)

        try:
            async with asyncio.timeout(MAX_SECONDS):
                await self._app(_scope(path), receive, reply.take)
        except TimeoutError:
            raise Wrong(f"no answer within {MAX_SECONDS:g} s") from None
        return reply

    def close(self) -> None:
        """Let go of the loop, the memory and the processes."""
        self._runner.run(self._gateway.leave())
        self._runner.close()


def _scope(path: str) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8000),
    }
