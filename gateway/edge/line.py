"""A connection's transport as uvicorn has it: who closes it only asks for that."""

from asyncio import Transport
from collections.abc import Callable
from typing import Any

from gateway.edge.sockets import num_unread_bytes, num_unsent_bytes


class Line:
    """Takes the place of a transport. Owned by the connection's protocol.

    A connection that is closed while something of the client's lies there unread is reset, and of
    that the client's system tells it at once: whatever was said last may never be read.
    """

    def __init__(self, transport: Transport, hang_up: Callable[[], None]) -> None:
        """`hang_up` is called when the connection is to be closed, once at most."""
        self._transport = transport
        self._hang_up = hang_up
        self._is_over = False

    def __getattr__(self, name: str) -> Any:
        """All else is as the transport has it."""
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Whether nothing may be written any more."""
        return self._is_over or self._transport.is_closing()

    def close(self) -> None:
        """Ask for the end; twice does nothing."""
        if not self.is_closing():
            self._is_over = True
            self._hang_up()

    def end_speech(self) -> None:
        """Tell the client that nothing more comes, and hear it nevertheless."""
        self._is_over = True
        self._transport.write_eof()
        self._transport.resume_reading()

    def shut(self) -> None:
        """Close it for good, behind what was written."""
        self._is_over = True
        self._transport.close()

    @property
    def has_unread(self) -> bool:
        """Whether something of the client's waits to be read."""
        if self._transport.is_closing():
            return False
        return num_unread_bytes(self._transport.get_extra_info("socket").fileno()) > 0

    @property
    def num_untaken_bytes(self) -> int:
        """Bytes that the client has not taken in; the system holds megabytes of them."""
        left: int = self._transport.get_write_buffer_size()
        return left + num_unsent_bytes(self._transport.get_extra_info("socket").fileno())
