"""The gateway's HTTP protocol around a small application, served as in production."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import orjson
import uvicorn
import uvloop
from starlette.types import Receive, Scope, Send

from config.settings import ServerSettings
from gateway.edge.protocol import ClientLimits, Http1
from gateway.edge.sockets import listen
from gateway.observe.metrics import Metrics

MEBIBYTE = 1 << 20
SOME_BYTES = 40_000  # less than makes a transport ask to wait
FLOOD_BYTES = 64 * MEBIBYTE
STALL_SECONDS = 0.6


@dataclass
class Application:
    """Tells what came; some paths answer in their own way. Owned by the server's loop."""

    left: list[str] = field(default_factory=list)  # paths whose client went away
    num_flooded: int = 0  # bytes of /flood that were taken from the application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["path"]:
            case "/early":
                await self._tell(send, {"path": "/early"})
            case "/early/last":
                await self._tell(send, {"path": "/early/last"}, (b"connection", b"close"))
            case "/hold":
                await self._hold(scope, receive)
            case "/begin":
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"begun", "more_body": True})
                await self._hold(scope, receive)
            case "/some":
                await self._tell(send, {"path": "x" * SOME_BYTES})
            case "/flood":
                await self._flood(send)
            case _:
                await self._echo(scope, receive, send)

    async def _hold(self, scope: Scope, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.left.append(scope["path"])

    async def _flood(self, send: Send) -> None:
        self.num_flooded = 0
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(FLOOD_BYTES // MEBIBYTE):
            chunk = b"x" * MEBIBYTE
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            self.num_flooded += MEBIBYTE
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _echo(self, scope: Scope, receive: Receive, send: Send) -> None:
        num_bytes, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.left.append(scope["path"])
                return
            num_bytes += len(message["body"])
            more = message["more_body"]
        names = sorted(name.decode("latin-1") for name, _ in scope["headers"])
        await self._tell(send, {"path": scope["path"], "num_bytes": num_bytes, "headers": names})

    async def _tell(self, send: Send, body: dict[str, Any], *more: tuple[bytes, bytes]) -> None:
        data = orjson.dumps(body)
        headers = [(b"content-length", str(len(data)).encode()), *more]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data, "more_body": False})


@dataclass
class Door:
    """A server on loopback."""

    address: tuple[str, int]
    application: Application
    metrics: Metrics
    end: Callable[[], None]  # has the server be busy, and then end its connections

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A connection; `receive_bytes` keeps what the system takes in for it small."""
        connection = socket.socket()
        if receive_bytes:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.settimeout(10)
        connection.connect(self.address)
        return connection

    def ask(self, data: bytes) -> bytes:
        """Send, and read until the server hangs up."""
        with self.connect() as connection:
            connection.sendall(data)
            return read_all(connection)

    @property
    def num_connections(self) -> float:
        return self.value("fovea_connections")

    def value(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    def until(self, condition: Any, seconds: float = 10) -> None:
        """Return once the condition holds."""
        limit = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < limit
            time.sleep(0.01)


def read_all(connection: socket.socket) -> bytes:
    """Everything up to the end, however it ends."""
    data = b""
    try:
        while chunk := connection.recv(MEBIBYTE):
            data += chunk
    except ConnectionError:
        pass
    return data


def error_of(answer: bytes) -> tuple[int, str]:
    """Status and code of an answer that has OpenAI's form of an error, checked in passing."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines[1:])
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    assert headers["x-request-id"]
    assert headers["connection"] == "close"
    error = orjson.loads(body)["error"]
    assert error.keys() >= {"message", "type", "param", "code", "retryable"}
    return int(lines[0].split()[1]), error["code"]


def bodies_of(answers: bytes) -> list[dict[str, Any]]:
    """The JSON bodies of answers that came one after the other."""
    bodies = []
    while answers:
        head, _, answers = answers.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        num_bytes = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        bodies.append(orjson.loads(answers[:num_bytes]))
        answers = answers[num_bytes:]
    return bodies


@contextmanager
def serving(send_bytes: int = 0, **limits: float) -> Iterator[Door]:
    """A server with these limits; those that are not named are never met by an honest client.

    `send_bytes` keeps what the system holds for each client small.
    """
    generous = {
        "head_seconds": 30.0,
        "body_seconds": 30.0,
        "idle_seconds": 30.0,
        "stalled_seconds": 30.0,
        "max_head_bytes": 8192,
        "max_connections": 1000,
    }
    metrics, application = Metrics(), Application()
    client_limits = ClientLimits(**cast("Any", generous | limits))
    with listen(ServerSettings(port=0)) as listener:
        if send_bytes:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        config = uvicorn.Config(
            application,
            http=cast("Any", partial(_Stalling, limits=client_limits, metrics=metrics)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        thread = threading.Thread(target=uvloop.run, args=(server.serve([listener]),))
        thread.start()
        try:
            yield Door(listener.getsockname(), application, metrics, server.end)
        finally:
            server.should_exit = True
            thread.join(10)
            assert not thread.is_alive()


class _Stalling(Http1):
    """Holds up the loop at a word, between its look at what has come and its look at the time."""

    def data_received(self, data: bytes) -> None:
        if b"/stall" in data:
            time.sleep(STALL_SECONDS)
        super().data_received(data)


class _Server(uvicorn.Server):
    """Looks every few milliseconds whether it shall end."""

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        time.sleep(STALL_SECONDS)
        for connection in list(self.server_state.connections):
            connection.shutdown()

    async def main_loop(self) -> None:
        self._loop = asyncio.get_running_loop()
        while not self.should_exit:  # noqa: ASYNC110 - another thread says so
            await asyncio.sleep(0.005)
