"""A collector of OpenTelemetry's on loopback: takes spans by HTTP and keeps them."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Told:
    """One span as it was sent."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent_id: str  # empty: there is none
    begun: float  # seconds since 1970
    ended: float
    attributes: dict[str, Any]
    is_error: bool

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.ended - self.begun


@dataclass
class Receiver:
    """What has come so far."""

    url: str
    spans: list[Told] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    bodies: bytes = b""

    def request(self, request_id: str, seconds: float = 10) -> Told:
        """The span of a request, once it is there."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit:
            for span in list(self.spans):
                if span.attributes.get("fovea.request_id") == request_id:
                    return span
            time.sleep(0.02)
        raise AssertionError(f"no span of the request {request_id} has come")

    def below(self, parent: Told) -> list[Told]:
        """The spans right below another; they come with it."""
        return [span for span in list(self.spans) if span.parent_id == parent.span_id]


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port for the length of a `with` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            _keep(receiver, body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        receiver = Receiver(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


def _keep(receiver: Receiver, body: bytes) -> None:
    batch = ExportTraceServiceRequest.FromString(body)
    receiver.bodies += body
    for resource in batch.resource_spans:
        receiver.resources.append(_values(resource.resource.attributes))
        for scope in resource.scope_spans:
            receiver.spans += [_told(span) for span in scope.spans]


def _told(span: Any) -> Told:
    return Told(
        name=span.name,
        kind=span.kind,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        begun=span.start_time_unix_nano / 1e9,
        ended=span.end_time_unix_nano / 1e9,
        attributes=_values(span.attributes),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
