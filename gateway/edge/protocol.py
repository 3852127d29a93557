"""uvicorn's HTTP/1.1 with bounds of time and size on what it leaves to the client.

What is bounded: how many connections are open, how long and how large the head of a request is,
how long one may be idle, how long a body that nobody reads any more may go on, how many requests
wait behind the one that is answered, and how long an answer waits for a client that does not read.

However a connection ends, the client can read why: what it still sends is taken in, unseen, until
it stops. One that was idle is told 408, which answers a request that is on its way to it.
"""

from asyncio import TimerHandle, Transport
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from gateway.edge.line import Line
from gateway.edge.offers import without_offer
from gateway.edge.refusal import answer_of
from gateway.errors import (
    HeadTimeout,
    HeadTooLarge,
    IdleTimeout,
    MalformedRequest,
    ServeError,
    TooManyConnections,
)
from gateway.observe.metrics import Metrics

# Requests that wait behind the one that is answered; clients that send so many are not known.
_MAX_PIPELINED = 32
# Time that a client gets to take in the last words, from the last that it sent itself.
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
        self._num_untaken_bytes = 0  # when that timer was set
        self._answering: RequestResponseCycle | None = None
        self._in_head = False  # its first byte has come, its last has not
        self._in_body = False
        self._num_head_bytes = 0  # of the head that is coming, as far as it is parsed
        self._num_loose_bytes = 0  # since the parser last told of anything
        self._is_last = False  # whether the next answer ends the connection
        self._deaf_until: float | None = None  # set once it is not looked at what still comes

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        self._line = Line(transport, self._hang_up)
        super().connection_made(cast("Transport", self._line))
        self._metrics.connections.inc()
        self._limit(self._limits.idle_seconds, self._time_out_idle)
        if len(self.connections) > self._limits.max_connections:
            self._refuse(TooManyConnections("too many connections are open; try again"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._metrics.connections.dec()
        self._unlimit()
        self._unwatch()
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf_until is not None:
            self._await_silence(self._deaf_until)
            return
        self._unset_keepalive_if_required()
        self._num_loose_bytes += len(data)
        try:
            self.parser.feed_data(without_offer(data))
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
            self._limit(self._limits.stalled_seconds, self._shut)

    def timeout_keep_alive_handler(self) -> None:
        """uvicorn's own limit of idleness, which knows less than the one here."""

    def shutdown(self) -> None:
        """The server ends, but answers a request that is coming in."""
        self._is_last = True
        if not self._in_head and (self._in_body or not self._line.has_unread):
            super().shutdown()

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
        if self._is_last:
            self.cycle.keep_alive = False
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
            self._limit(self._limits.idle_seconds, self._time_out_idle)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        self._unlimit()
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        self._answering = None
        super().on_response_complete()
        if self._deaf_until is not None:
            return  # only the end is waited for
        if self.transport.is_closing():
            self._limit(self._limits.stalled_seconds, self._shut)
        elif self._answering is not None:
            return  # to the request that waited behind
        elif self._in_head:
            self._limit(self._limits.head_seconds, self._time_out_head)
        elif self._in_body:
            self._limit(self._limits.body_seconds, self._shut)
        else:
            self._limit(self._limits.idle_seconds, self._time_out_idle)

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

    def _time_out_idle(self) -> None:
        """Nothing has come, unless it came just now and the loop has not got to it."""
        if self._line.has_unread:
            self._limit(_LAST_WORDS_SECONDS, self._time_out_idle)
            return
        seconds = self._limits.idle_seconds
        self._say_last(IdleTimeout(f"no request came within {seconds:g} s"))

    def _hang_up(self) -> None:
        """End the connection behind what was written."""
        if self._in_head or self._in_body or self._line.has_unread:
            self._stop_hearing(self._limits.body_seconds)
        else:
            self._line.shut()

    def _stop_hearing(self, seconds: float) -> None:
        """Say that nothing more comes; for so long, take in what the client still sends."""
        self._deaf_until = self.loop.time() + seconds
        self._line.end_speech()
        self._await_silence(self._deaf_until)

    def _await_silence(self, until: float) -> None:
        is_heard = not self.transport.get_write_buffer_size()
        patience = _LAST_WORDS_SECONDS if is_heard else self._limits.stalled_seconds
        self._limit(max(0.0, min(patience, until - self.loop.time())), self._shut)

    def _shut(self) -> None:
        """Close, and do not wait for a client that does not read the little that is left."""
        if self.flow.write_paused:  # it is much; the other timer watches that
            self._limit(self._limits.stalled_seconds, self._shut)
        elif self.transport.get_write_buffer_size():
            self._cut("stalled")
        else:
            self._line.shut()

    def _watch_reading(self) -> None:
        self._num_untaken_bytes = self._line.num_untaken_bytes
        self._reading_timer = self.loop.call_later(
            self._limits.stalled_seconds, self._check_reading
        )

    def _unwatch(self) -> None:
        if self._reading_timer is not None:
            self._reading_timer.cancel()
            self._reading_timer = None

    def _check_reading(self) -> None:
        if self._num_untaken_bytes - self._line.num_untaken_bytes < _LEAST_READ_BYTES:
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
        self._metrics.requests.labels(str(error.status), error.code).inc()
        if self._answering is not None and self._answering.response_started:
            self._cut(error.code)  # nothing may be written into another answer
        elif self._answering is None and self._in_body:  # nor behind one
            self._stop_hearing(self._limits.body_seconds)
        else:
            self._say_last(error)

    def _say_last(self, error: ServeError) -> None:
        if self.transport.is_closing():
            return
        self._leave()
        self.transport.write(answer_of(error))
        # Who is one too many is not let stay, however much it sends.
        is_one_of_us = not isinstance(error, TooManyConnections)
        self._stop_hearing(self._limits.body_seconds if is_one_of_us else _LAST_WORDS_SECONDS)


def _fault(error: BaseException) -> ServeError:
    """Why the parser stopped: by one of the calls above, or because of the bytes."""
    cause = error.__context__
    return cause if isinstance(cause, ServeError) else MalformedRequest("this is no HTTP/1.1")
