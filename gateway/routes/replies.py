"""JSON bodies, errors and event streams, sent the same way by every route."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Scope, Send

from gateway.edge.request_id import request_id_of
from gateway.errors import ServeError, error_body

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # proxies of nginx's kind must not hold tokens back
]


def json_response(body: Any, status: int = 200) -> Response:
    """A response whose body is `body` as JSON."""
    return Response(orjson.dumps(body), status, media_type="application/json")


def error_response(error: ServeError, scope: Scope) -> Response:
    """The error's status, headers and OpenAI error body."""
    response = json_response(error_body(error, request_id_of(scope)), error.status)
    if error.retry_after_seconds is not None:
        response.headers["retry-after"] = str(error.retry_after_seconds)
    if error.status == HTTPStatus.UNAUTHORIZED:
        response.headers["www-authenticate"] = "Bearer"
    if error.status == HTTPStatus.REQUEST_TIMEOUT:
        response.headers["connection"] = "close"  # the rest of the body is not waited for
    return response


class EventStream:
    """A response that is sent frame by frame. Owned by the request's task."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = False
        self.ended = False

    async def start(self, more: Mapping[str, str]) -> None:
        """Send status 200, the headers of an event stream, and `more` of them."""
        self.started = True
        headers = [
            *STREAM_HEADERS,
            *((name.encode(), text.encode()) for name, text in more.items()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, frames: bytes) -> None:
        """Send frames; waits while the client reads slowly."""
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def end(self, frames: bytes) -> None:
        """Send the last frames and close the stream."""
        await self._send({"type": "http.response.body", "body": frames, "more_body": False})
        self.ended = True
