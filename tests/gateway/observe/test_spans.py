"""Spans of requests, without a gateway: what a collector may do to us."""

import socket
import sys
import time
from typing import Any

import pytest

from gateway.edge.sockets import StartError
from gateway.observe.ended import Ended
from gateway.observe.spans import Spans
from gateway.observe.timeline import Pass
from gateway.start.preflight import open_spans
from tests.receiver import receiving


def ended(request_id: str, *, status: int = 200, num_passes: int = 2) -> Ended:
    now = time.monotonic()
    scope: dict[str, Any] = {
        "type": "http",
        "method": "POST",
        "path": "/v1/completions",
        "headers": [],
        "state": {"request_id": request_id},
    }
    return Ended(
        scope=scope,
        begun=now - 3,
        job_id="job",
        status=status,
        code="" if status == 200 else "worker_lost",
        passes=[Pass("encode", 1.0, "owner-1", now - 1)] * num_passes,
        model="m",
        usage=None,
    )


def test_times_are_those_of_the_calendar() -> None:
    with receiving() as receiver:
        spans = Spans(receiver.url)
        now = time.time()
        fields = spans.record(ended("one", num_passes=1))
        spans.close(10)
    request = receiver.request("one")
    (encode,) = receiver.below(request)
    assert fields == {"trace_id": request.trace_id, "span_id": request.span_id}
    assert (request.begun, request.ended) == pytest.approx((now - 3, now), abs=0.1)
    assert (encode.begun, encode.ended) == pytest.approx((now - 2, now - 1), abs=0.1)
    assert encode.attributes == {"fovea.worker": "owner-1"}
    assert request.attributes["gen_ai.operation.name"] == "text_completion"


@pytest.mark.parametrize(("status", "is_error"), [(200, False), (400, False), (503, True)])
def test_only_our_own_faults_are_errors(status: int, is_error: bool) -> None:
    with receiving() as receiver:
        spans = Spans(receiver.url)
        spans.record(ended("one", status=status))
        spans.close(10)
    assert receiver.request("one").is_error is is_error


@pytest.mark.slow
def test_a_collector_that_never_answers_does_not_hold_up_the_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spans = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        spans.record(ended("one"))
        begun = time.monotonic()
        spans.close(0.3)
        assert 0.25 < time.monotonic() - begun < 3
        begun = time.monotonic()
        spans.record(ended("late"))  # nothing more is sent, and nothing breaks
        assert time.monotonic() - begun < 0.25


def test_what_is_more_than_the_queue_holds_is_dropped_without_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "50")
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "50")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        spans = Spans(f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces")
        begun = time.monotonic()
        spans.record(ended("many", num_passes=500))
        assert time.monotonic() - begun < 3
        spans.close(0)


def test_without_an_endpoint_there_are_no_spans() -> None:
    assert open_spans("") is None


def test_an_endpoint_without_the_packages_stops_the_start_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "gateway.observe.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(StartError, match=r"opentelemetry.*pip install 'fovea\[otel\]'"):
        open_spans("http://127.0.0.1:4318/v1/traces")
