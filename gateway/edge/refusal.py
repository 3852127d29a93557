"""An error in, the bytes of a whole HTTP answer out, for what never was a request."""

import secrets
from http import HTTPStatus

import orjson

from gateway.edge.request_id import HEADER
from gateway.errors import ServeError, error_body


def answer_of(error: ServeError) -> bytes:
    """The last answer on a connection, with its head; in OpenAI's form."""
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
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
