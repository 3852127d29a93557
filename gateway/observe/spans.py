"""Requests that have ended in, OpenTelemetry's spans out; needs the extra `otel`.

A request is one span of the kind server, with one below it for each pass of a stage, also of those
that workers went through. They are made when the request has ended and sent by the SDK's own
thread, so a collector that is slow or gone holds up nobody: what it does not take is dropped.
Nothing of a prompt, an image, an address or a key is in them.
"""

import time
from threading import Thread
from uuid import uuid4

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from starlette.datastructures import Headers

from gateway.answers.sse import Usage
from gateway.edge.request_id import request_id_of
from gateway.observe.ended import Ended

_PARENT = "traceparent"
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
}


class Spans:
    """Owned by the event loop."""

    def __init__(self, endpoint: str) -> None:
        """`endpoint` is the whole address; OTEL_ variables say the rest, such as headers."""
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=endpoint)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("fovea")
        self._propagator = TraceContextTextMapPropagator()

    def record(self, ended: Ended) -> dict[str, str]:
        """Make the spans of a request that ends now; its fields for the log."""
        epoch = time.time() - time.monotonic()  # of monotonic seconds, for all of this trace alike
        request = self._tracer.start_span(
            f"{ended.scope['method']} {ended.scope['path']}",
            self._parent(ended),
            SpanKind.SERVER,
            _attributes(ended),
            start_time=_nanoseconds(epoch + ended.begun),
        )
        if request.is_recording():
            self._record_passes(ended, request, epoch)
        if ended.status >= 500:
            request.set_status(Status(StatusCode.ERROR))
        request.end(_nanoseconds(epoch + time.monotonic()))
        context = request.get_span_context()
        return {
            "trace_id": trace.format_trace_id(context.trace_id),
            "span_id": trace.format_span_id(context.span_id),
        }

    def _parent(self, ended: Ended) -> Context:
        """The caller's span, if it names one; `tracestate`, which may hold anything, is left."""
        parent = Headers(scope=ended.scope).get(_PARENT, "")
        return self._propagator.extract({_PARENT: parent}, Context())

    def _record_passes(self, ended: Ended, request: Span, epoch: float) -> None:
        below = trace.set_span_in_context(request, Context())
        for each in ended.passes:
            span = self._tracer.start_span(
                each.stage,
                below,
                attributes={"fovea.worker": each.worker} if each.worker else None,
                start_time=_nanoseconds(epoch + each.ended - each.seconds),
            )
            span.end(_nanoseconds(epoch + each.ended))

    def close(self, seconds: float) -> None:
        """Send what is left, for so long at most; blocking."""
        last = Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(seconds)


def _resource() -> Resource:
    """Who sends; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES have the last word."""
    ours = Resource.create({"service.name": "fovea", "service.instance.id": str(uuid4())})
    return ours.merge(OTELResourceDetector().detect())


def _attributes(ended: Ended) -> dict[str, AttributeValue]:
    route = ended.scope["path"]  # all routes with a body are exact
    attributes: dict[str, AttributeValue] = {
        "http.request.method": ended.scope["method"],
        "http.route": route,
        "http.response.status_code": ended.status,
        "fovea.request_id": request_id_of(ended.scope),
        "fovea.job_id": ended.job_id,
    }
    if ended.code:
        attributes["error.type"] = ended.code
    if route in _OPERATIONS:
        attributes["gen_ai.operation.name"] = _OPERATIONS[route]
        attributes["gen_ai.provider.name"] = "fovea"
    if ended.usage is not None:
        attributes |= {"gen_ai.request.model": ended.model, "gen_ai.response.model": ended.model}
        attributes |= _tokens(ended.usage)
    return attributes


def _tokens(usage: Usage) -> dict[str, AttributeValue]:
    return {
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": usage.thought_tokens,
        "fovea.usage.image_tokens": usage.image_tokens,
    }


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
