"""Frames of four length bytes and msgpack: messages in, bytes out, and back again."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from workers.messages import Frame

HEADER_BYTES = 4
MAX_FRAME_BYTES = 16 << 20  # a prompt of a million tokens takes a quarter of it
MAX_BACKLOG_BYTES = 4 << 20
_CHUNK_BYTES = 256 << 10

Message = TypeVar("Message")


class FrameTooLong(Exception):
    """A frame above MAX_FRAME_BYTES; if it was read, nothing behind it can be trusted."""


class NotUnderstood(Exception):
    """The body of a frame is no message; those of other frames may be."""


def pack(message: Frame) -> bytes:
    """One message as a frame.

    Raises:
        FrameTooLong: the message does not fit a frame.
    """
    body = msgspec.msgpack.encode(message)
    _check_length(len(body))
    return len(body).to_bytes(HEADER_BYTES, "big") + body


def unpack(body: bytes, decoder: msgspec.msgpack.Decoder[Message]) -> Message:
    """The message that is the body of a frame.

    Raises:
        NotUnderstood: it is none of those that the decoder knows.
    """
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:  # the latter where it lies too deep
        raise NotUnderstood(str(error)) from error


def _check_length(num_bytes: int) -> None:
    if num_bytes > MAX_FRAME_BYTES:
        raise FrameTooLong(f"a frame of {num_bytes} bytes; the limit is {MAX_FRAME_BYTES}")


class Splitter:
    """Cuts a stream of bytes, fed in pieces of any size, into the bodies of its frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The bodies that `data` completes, in order; to be taken before the next call.

        Raises:
            FrameTooLong: a header announces too long a frame; the stream is of no use any more.
        """
        self._buffer += data
        start = 0
        while (end := self._frame_end(start)) is not None:
            yield bytes(self._buffer[start + HEADER_BYTES : end])
            start = end
        del self._buffer[:start]

    def _frame_end(self, start: int) -> int | None:
        body = start + HEADER_BYTES
        if len(self._buffer) < body:
            return None
        num_bytes = int.from_bytes(self._buffer[start:body], "big")
        _check_length(num_bytes)
        return body + num_bytes if len(self._buffer) >= body + num_bytes else None


class Channel:
    """A worker's end of its link: reads never block unless asked to wait, writes are bounded.

    Owned by the worker's loop, beside which a thread may write. `closed` turns true when the
    gateway is gone; from then on reads give nothing and writes do nothing.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.set_inheritable(False)
        self.closed = False
        self._connection = connection
        self._splitter = Splitter()
        self._backlog = bytearray()
        self._writing = threading.Lock()
        self._bell, self._rope = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def receive(self, *, wait: bool) -> list[bytes]:
        """Bodies of the frames that have come; with `wait`, sleep until the socket stirs, or the
        bell rings.

        Raises:
            FrameTooLong: see `Splitter.feed`.
        """
        if wait and not self.closed:
            self._poll(select.POLLIN | (select.POLLOUT if self._backlog else 0), self._bell)
            with contextlib.suppress(BlockingIOError):
                os.read(self._bell, _CHUNK_BYTES)
        with self._writing:
            self._flush()
        bodies: list[bytes] = []
        while chunk := self._read():
            bodies += self._splitter.feed(chunk)
        return bodies

    def send(self, *messages: Frame) -> None:
        """Write messages in one go, or keep them for later while the gateway is slow to read.

        Waits for the gateway once more than MAX_BACKLOG_BYTES are kept. Any thread may call this.
        """
        frames = b"".join(map(pack, messages))
        with self._writing:
            self._backlog += frames
            self._flush()
            while len(self._backlog) > MAX_BACKLOG_BYTES:
                self._poll(select.POLLOUT)
                self._flush()

    def ring(self) -> None:
        """End a wait in `receive`, now or the next one. Any thread may call this."""
        with contextlib.suppress(BlockingIOError):  # it rings already
            os.write(self._rope, b"!")

    def drain(self) -> None:
        """Wait until everything sent is on its way, or the gateway is gone."""
        with self._writing:
            self._flush()
            while self._backlog:
                self._poll(select.POLLOUT)
                self._flush()

    def _poll(self, events: int, bell: int | None = None) -> None:
        poll = select.poll()
        poll.register(self._connection, events)
        if bell is not None:
            poll.register(bell, select.POLLIN)
        poll.poll()

    def _read(self) -> bytes:
        if self.closed:
            return b""
        try:
            chunk = self._connection.recv(_CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except ConnectionError:
            chunk = b""
        self.closed = not chunk
        return chunk

    def _flush(self) -> None:
        try:
            while self._backlog and not self.closed:
                del self._backlog[: self._connection.send(self._backlog)]
        except BlockingIOError:
            return
        except ConnectionError:
            self.closed = True
        if self.closed:
            self._backlog.clear()


def job_id_of(body: bytes) -> str | None:
    """The job that a message is about, found even when the message itself is not understood."""
    try:
        content: Any = unpack(body, msgspec.msgpack.Decoder())
    except NotUnderstood:
        return None
    job_id = content.get("job_id") if isinstance(content, dict) else None
    return job_id if isinstance(job_id, str) else None
