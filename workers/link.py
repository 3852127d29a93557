"""One worker process and the socket to it: messages out, messages in, and word of its end."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import msgspec

from workers.messages import FromWorker, ToWorker
from workers.wire import FrameTooLong, NotUnderstood, Splitter, pack, unpack

OUTBOX_BYTES = 32 << 20
ROOT = Path(__file__).resolve().parent.parent
_LAST_WORDS_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a worker: its command, the arenas it inherits and its environment."""

    command: tuple[str, ...]
    arenas: tuple[int, ...]  # file numbers, by worker index
    environment: Mapping[str, str]


class Link(asyncio.Protocol):
    """One life of a worker. Owned by its keeper."""

    def __init__(self, receive: Callable[[FromWorker], None]) -> None:
        self.fault = ""  # what it did wrong, if the gateway had to end it
        self._receive = receive
        self._splitter = Splitter()
        self._decoder = msgspec.msgpack.Decoder(FromWorker)
        self._closed = asyncio.get_running_loop().create_future()
        self._leaving = False
        self._transport: asyncio.Transport
        self._process: asyncio.subprocess.Process

    @classmethod
    async def open(cls, launch: Launch, receive: Callable[[FromWorker], None]) -> "Link":
        """Start a process; `receive` gets its messages.

        Raises:
            OSError: it cannot be started.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            loop = asyncio.get_running_loop()
            _, link = await loop.create_unix_connection(lambda: cls(receive), sock=ours)
            try:
                link._process = await _spawn(launch, theirs.fileno())
            except BaseException:
                link._transport.abort()
                raise
        return link

    @property
    def is_closed(self) -> bool:
        """Whether the worker cannot be reached any more."""
        return self._closed.done() or self._transport.is_closing()

    def send(self, message: ToWorker) -> None:
        """Queue a message; never waits, and does nothing once the link is closed.

        Raises:
            FrameTooLong: see `pack`.
        """
        if not self.is_closed:
            self._transport.write(pack(message))

    @property
    def outbox_is_full(self) -> bool:
        """Whether OUTBOX_BYTES or more wait for the worker to read."""
        return self._transport.get_write_buffer_size() >= OUTBOX_BYTES

    def let_leave(self) -> None:
        """Expect the process to end by itself: closing its socket is no reason to kill it."""
        self._leaving = True

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait_end(self) -> int:
        """Wait until the process is gone, and help once its socket has closed; its exit status.

        Afterwards nothing writes to the arenas in its name.
        """
        gone = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({gone, self._closed}, return_when=asyncio.FIRST_COMPLETED)
        if gone.done():
            await asyncio.wait({self._closed}, timeout=_LAST_WORDS_SECONDS)
        elif not self._leaving:
            self.kill()
        status = await gone
        self._transport.abort()
        return status

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass

    def data_received(self, data: bytes) -> None:
        """Called by the event loop; what cannot be understood ends the worker."""
        try:
            for body in self._splitter.feed(data):
                self._receive(unpack(body, self._decoder))
        except (FrameTooLong, NotUnderstood) as error:
            self.fault = f"sent a broken frame: {error}"
            self._transport.abort()  # which ends the process, see wait_end

    def eof_received(self) -> None:
        """Called by the event loop; nothing is written to a worker that does not answer."""
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop."""
        self._closed.set_result(None)


async def _spawn(launch: Launch, connection: int) -> asyncio.subprocess.Process:
    # The folder of our own packages: in any other, a folder `config` would hide ours.
    return await asyncio.create_subprocess_exec(
        *launch.command,
        *map(str, (connection, os.getpid(), *launch.arenas)),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=(connection, *launch.arenas),
        env=launch.environment,
        cwd=ROOT,
        start_new_session=True,  # Ctrl-C is for the gateway, which lets the workers leave
    )


def describe_exit(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exited with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"
