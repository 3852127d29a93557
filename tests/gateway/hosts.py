"""Image hosts on loopback that do whatever a test wants."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc

# A host's whole behaviour: it gets the stream and the text of the request's head.
Behaviour = Callable[[anyio.abc.SocketStream, str], Awaitable[None]]


class Host:
    """A host that answers each path by its behaviour and remembers the heads it was sent."""

    def __init__(self, **behaviours: Behaviour) -> None:
        self.behaviours = behaviours
        self.heads: list[str] = []
        self.url = ""

    async def answer(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            head = b""
            try:
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                self.heads.append(head.decode())
                path = head.split()[1].decode().partition("?")[0]
                await self.behaviours[path.strip("/")](stream, head.decode())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                pass  # the client has left


@asynccontextmanager
async def serving(**behaviours: Behaviour) -> AsyncIterator[Host]:
    host = Host(**behaviours)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    host.url = f"http://127.0.0.1:{port}"
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, host.answer)
        yield host
        group.cancel_scope.cancel()


def answering(head: str, *chunks: bytes) -> Behaviour:
    """Send a head (its lines separated by |) and then the chunks."""

    async def behave(stream: anyio.abc.SocketStream, _: str) -> None:
        await stream.send(head.replace("|", "\r\n").encode() + b"\r\n\r\n")
        for chunk in chunks:
            await stream.send(chunk)

    return behave


def redirecting(location: str, status: int = 302) -> Behaviour:
    return answering(f"HTTP/1.1 {status} Moved|content-length: 0|location: {location}")


def good(data: bytes) -> Behaviour:
    head = f"HTTP/1.1 200 OK|content-length: {len(data)}|content-type: text/plain"
    return answering(head, data)
