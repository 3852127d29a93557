"""uvicorn's HTTP/1.1 with bounds of time and size on what it leaves to the client.

What is bounded: how many connections are open, how long and how large the head of a request is,
how long one may be idle, how long a body that nobody reads any more may go on, how many requests
wait behind the one that is answered, and how long an answer waits for a client that does not read.

It is deaf to offers of other protocols: taking note of one, its parser drops the body. Some
clients, Java's own among them, offer HTTP/2 with every request until they are told no.
"""

import re
import secrets
from asyncio import TimerHandle, Transport
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.edge.request_id import HEADER
from gateway.edge.sockets import num_unsent_bytes
from gateway.errors import (
    HeadTimeout,
    HeadTooLarge,
    MalformedRequest,
    ServeError,
    TooManyConnections,
    error_body,
)
from gateway.observe.metrics import Metrics

_OFFER = re.compile(rb"\r\nupgrade:[^\r\n]*(?=\r\n)", re.IGNORECASE)
_END_OF_HEAD = b"\r\n\r\n"
# Requests that wait behind the one that is answered; clients that send so many are not known.
_MAX_PIPELINED = 32
# Time that a client gets to take in the last words before its connection is cut.
_LAST_WORDS_SECONDS = 2.0
# What a client has to read, of what waits for it, each time that `stalled_seconds` pass.
_LEAST_READ_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What a connection may take."""

    head_seconds: float
    body_seconds: float
    idle_seconds: float
    stalled_seconds: float
    max_head_bytes: int
    max_connections: int


class Http1(HttpToolsProtocol):
    """One connection. Owned by uvicorn.

    At any time at most one limit of time is on what the client does, and one on what it reads.
    """

    def __init__(self, *args: Any, limits: ClientLimits, metrics: Metrics, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._metrics = metrics
        self._timer: TimerHandle | None = None
        self._reading_timer: TimerHandle | None = None
        self._num_unread_bytes = 0  # when that timer was set
        self._answering: RequestResponseCycle | None = None
        self._in_head = False  # its first byte has come, its last has not
        self._in_body = False
        self._num_head_bytes = 0  # of the head that is coming, as far as it is parsed
        self._num_loose_bytes = 0  # since the parser last told of anything
        self._is_refused = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._metrics.connections.inc()
        self._limit(self._limits.head_seconds, self._close_quietly)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(TooManyConnections("too many connections are open; try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._metrics.connections.dec()
        self._unlimit()
        self._unwatch()
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._unset_keepalive_if_required()
        self._num_loose_bytes += len(data)
        try:
            self.parser.feed_data(_without_offer(data))
        except httptools.HttpParserUpgrade:
            pass  # no other protocol is spoken here; the request is answered as it is
        except httptools.HttpParserError as error:
            self._refuse(_fault(error))
            return
        if self._num_loose_bytes > self._limits.max_head_bytes:
            self._refuse(self._too_large())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unwatch()
        if self.transport.is_closing():
            self._limit(self._limits.stalled_seconds, self._close_quietly)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._num_head_bytes = True, 0
        if self._answering is None:
            self._limit(self._limits.head_seconds, self._time_out_head)

    def on_url(self, url: bytes) -> None:
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count_head(len(name) + len(value))
        if self._in_head:  # else it comes behind a body, where nobody may say anything new
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._num_loose_bytes = False, 0
        super().on_headers_complete()
        self._in_body = True
        if len(self.pipeline) > _MAX_PIPELINED:
            raise MalformedRequest(f"more than {_MAX_PIPELINED} requests wait for their answers")
        if self.pipeline:
            self.flow.resume_reading()  # who does not read does not see the client leave

    def on_body(self, body: bytes) -> None:
        self._num_loose_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body, self._num_loose_bytes = False, 0
        super().on_message_complete()
        if self._answering is None:
            self._limit(self._limits.idle_seconds, self._close_quietly)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        self._unlimit()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._answering = None
        super().on_response_complete()
        if self.transport.is_closing():
            self._limit(self._limits.stalled_seconds, self._close_quietly)
        elif self._answering is not None:
            return  # to the request that waited behind
        elif self._in_head:
            self._limit(self._limits.head_seconds, self._time_out_head)
        elif self._in_body:
            self._limit(self._limits.body_seconds, self._close_quietly)
        else:
            self._limit(self._limits.idle_seconds, self._close_quietly)

    def _limit(self, seconds: float, end: Callable[[], None]) -> None:
        self._unlimit()
        self._timer = self.loop.call_later(seconds, end)

    def _unlimit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out_head(self) -> None:
        seconds = self._limits.head_seconds
        self._refuse(HeadTimeout(f"the head of the request did not arrive within {seconds:g} s"))

    def _close_quietly(self) -> None:
        """Close, and do not wait for a client that does not read the little that is left."""
        if self.flow.write_paused:  # it is much; the other timer watches that
            self._limit(self._limits.stalled_seconds, self._close_quietly)
        elif self.transport.get_write_buffer_size():
            self._cut("stalled")
        else:
            self.transport.close()

    def _watch_reading(self) -> None:
        self._num_unread_bytes = self._count_unread()
        self._reading_timer = self.loop.call_later(
            self._limits.stalled_seconds, self._check_reading
        )

    def _unwatch(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _count_unread(self) -> int:
        """Bytes that the client has not taken in; the system holds megabytes of them."""
        left: int = self.transport.get_write_buffer_size()
        return left + num_unsent_bytes(self.transport.get_extra_info("socket").fileno())

    def _check_reading(self) -> None:
        if self._num_unread_bytes - self._count_unread() < _LEAST_READ_BYTES:
            self._cut("stalled")
        else:
            self._watch_reading()

    def _cut(self, reason: str) -> None:
        self._metrics.connections_cut.labels(reason).inc()
        self.transport.abort()

    def _count_head(self, num_bytes: int) -> None:
        self._num_head_bytes += num_bytes
        if self._num_head_bytes > self._limits.max_head_bytes:
            raise self._too_large()

    def _too_large(self) -> HeadTooLarge:
        limit = self._limits.max_head_bytes
        return HeadTooLarge(
            f"the head of the request, or its trailer, is larger than {limit} bytes"
        )

    def _leave(self) -> None:
        """Tell those who answer that nobody hears them any more."""
        answering, self._answering = self._answering, None
        if answering is not None and not answering.response_complete:
            # uvicorn tells the last request alone, which may be one that waits behind this.
            answering.disconnected = True
            answering.message_event.set()
        self.pipeline.clear()

    def _refuse(self, error: ServeError) -> None:
        """Say why and hang up; what still comes is not looked at."""
        self._is_refused = True
        self._metrics.requests.labels(str(error.status), error.code).inc()
        has_begun = self._in_body if self._answering is None else self._answering.response_started
        if has_begun:  # nothing may be written into or behind another answer
            self._cut(error.code)
            return
        self._leave()
        self.transport.write(_answer(error))
        self.transport.write_eof()
        self._limit(_LAST_WORDS_SECONDS, self.transport.abort)


def _without_offer(data: bytes) -> bytes:
    # Nothing else than a head begins like this and holds such a line: JSON cannot.
    if not data.startswith(b"POST "):
        return data
    head, end, rest = data.partition(_END_OF_HEAD)
    return _OFFER.sub(b"", head + end) + rest


def _fault(error: BaseException) -> ServeError:
    """Why the parser stopped: by one of the calls above, or because of the bytes."""
    cause = error.__context__
    return cause if isinstance(cause, ServeError) else MalformedRequest("this is no HTTP/1.1")


def _answer(error: ServeError) -> bytes:
    request_id = secrets.token_hex(12)
    body = orjson.dumps(error_body(error, request_id))
    lines = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"{HEADER}: {request_id}",
        "connection: close",
    ]
    if error.retry_after_seconds is not None:
        lines.append(f"retry-after: {error.retry_after_seconds}")
    return "\r\n".join(lines).encode() + _END_OF_HEAD + body
