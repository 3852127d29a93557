"""Image hosts on loopback that do whatever a test wants."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import anyio.abc
from anyio.streams.tls import TLSListener

# A host's whole behaviour: it gets the stream and the text of the request's head.
Behaviour = Callable[[anyio.abc.ByteStream, str], Awaitable[None]]


class Host:
    """A host that answers each path by its behaviour and remembers who came and what was asked."""

    def __init__(self, **behaviours: Behaviour) -> None:
        self.behaviours = behaviours
        self.num_connections = 0
        self.left = anyio.Event()  # a client has ended a connection early
        self.heads: list[str] = []
        self.names: list[str | None] = []  # that callers asked for at the start of TLS
        self.port = 0
        self.url = ""

    async def answer(self, stream: anyio.abc.ByteStream) -> None:
        self.num_connections += 1
        async with stream:
            head = b""
            try:
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                self.heads.append(head.decode())
                path = head.split()[1].decode().partition("?")[0]
                await self.behaviours[path.strip("/")](stream, head.decode())
            except (anyio.EndOfStream, anyio.BrokenResourceError):
                self.left.set()


@asynccontextmanager
async def serving(
    tls: ssl.SSLContext | None = None, **behaviours: Behaviour
) -> AsyncIterator[Host]:
    host = Host(**behaviours)
    listener: anyio.abc.Listener[anyio.abc.ByteStream]
    listener = plain = await anyio.create_tcp_listener(local_host="127.0.0.1")
    host.port = plain.extra(anyio.abc.SocketAttribute.local_port)
    host.url = f"http://127.0.0.1:{host.port}"
    if tls is not None:
        host.url = f"https://127.0.0.1:{host.port}"
        tls.sni_callback = lambda _, name, __: host.names.append(name)
        listener = TLSListener(plain, tls, standard_compatible=False)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, host.answer)
        yield host
        group.cancel_scope.cancel()


def answering(head: str, *chunks: bytes) -> Behaviour:
    """Send a head (its lines separated by |) and then the chunks."""

    async def behave(stream: anyio.abc.ByteStream, _: str) -> None:
        await stream.send(head.replace("|", "\r\n").encode() + b"\r\n\r\n")
        for chunk in chunks:
            await stream.send(chunk)

    return behave


def redirecting(location: str, status: int = 302) -> Behaviour:
    return answering(f"HTTP/1.1 {status} Moved|content-length: 0|location: {location}")


def good(data: bytes) -> Behaviour:
    head = f"HTTP/1.1 200 OK|content-length: {len(data)}|content-type: text/plain"
    return answering(head, data)
