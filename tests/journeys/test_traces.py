"""Traces as a collector gets them, of a real gateway with real workers."""

import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.journeys.server import Server, running
from tests.journeys.test_observe import SECRET_WORDS, image, lines_of
from tests.receiver import Receiver, Told, receiving

pytestmark = pytest.mark.slow

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SERVER = 2  # the kind of span
OWNER_STAGES = {"queue", "preprocess", "digest", "encode"}
ENGINE_STAGES = {"transfer", "prefill", "generate"}


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture(scope="module")
def traced(receiver: Receiver) -> Iterator[Server]:
    """By OpenTelemetry's own variable, as others set it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with running(workers="cpu:vision,cpu:language", log_format="json") as server:
            yield server


def ask(server: Server, request_id: str, width: int, **headers: str) -> httpx.Response:
    """An image of its own, so that no request is spared the work by another."""
    say = {"type": "text", "text": SECRET_WORDS}
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": [image(width, "teal"), say]}],
        "max_tokens": 4,
        "ignore_eos": True,
    }
    headers = {"x-request-id": request_id, **headers}
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, headers=headers, timeout=60)


def covered(parent: Told, spans: list[Told]) -> float:
    """Seconds of the parent in which at least one of the spans goes on."""
    seconds, until = 0.0, parent.begun
    for span in sorted(spans, key=lambda each: each.begun):
        seconds += max(0.0, span.ended - max(span.begun, until))
        until = max(until, span.ended)
    return seconds


def test_a_request_is_one_span_with_one_below_it_for_each_pass_of_a_stage(
    traced: Server, receiver: Receiver
) -> None:
    answer = ask(traced, "traced-1", 131)
    request = receiver.request("traced-1")
    assert (request.name, request.kind) == ("POST /v1/chat/completions", SERVER)
    assert request.parent_id == ""
    usage = answer.json()["usage"]
    assert (
        request.attributes.items()
        >= {
            "http.request.method": "POST",
            "http.route": "/v1/chat/completions",
            "http.response.status_code": 200,
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": traced.model,
            "gen_ai.usage.input_tokens": usage["prompt_tokens"],
            "gen_ai.usage.output_tokens": 4,
        }.items()
    )
    stages = receiver.below(request)
    assert {each.trace_id for each in stages} == {request.trace_id}
    assert {each.name for each in stages} >= {"parse", "fetch", "header", "tokenise", "decode"}
    workers = [each["name"] for each in httpx.get(f"{traced.url}/ready").json()["workers"]]
    by_worker = {each.name: each.attributes.get("fovea.worker") for each in stages}
    assert {name for name, worker in by_worker.items() if worker == workers[0]} == OWNER_STAGES
    assert {name for name, worker in by_worker.items() if worker == workers[1]} == ENGINE_STAGES
    assert receiver.resources[0]["service.name"] == "fovea"
    assert receiver.resources[0]["deployment.environment.name"] == "test"


def test_stages_lie_within_their_request_and_add_up_to_it(
    traced: Server, receiver: Receiver
) -> None:
    ask(traced, "traced-2", 640)
    request = receiver.request("traced-2")
    stages = receiver.below(request)
    (line,) = lines_of(traced, "traced-2")
    assert line["trace_id"] == request.trace_id
    assert line["span_id"] == request.span_id
    assert request.seconds == pytest.approx(line["seconds"], abs=0.005)
    sums: dict[str, float] = {}
    for each in stages:
        sums[each.name] = sums.get(each.name, 0.0) + each.seconds
        assert request.begun - 1e-6 <= each.begun <= each.ended <= request.ended + 1e-6
    assert sums == pytest.approx(line["stages"], abs=1e-5)
    assert covered(request, stages) > 0.8 * request.seconds
    at = {each.name: each for each in stages}
    assert at["decode"].ended <= at["encode"].begun <= at["prefill"].begun < at["generate"].begun


def test_a_trace_that_the_caller_began_goes_on(traced: Server, receiver: Receiver) -> None:
    ask(traced, "traced-3", 133, traceparent=f"00-{TRACE}-{CALLER}-01", tracestate="shop=secret")
    request = receiver.request("traced-3")
    assert (request.trace_id, request.parent_id) == (TRACE, CALLER)
    assert {each.trace_id for each in receiver.below(request)} == {TRACE}
    assert b"shop=secret" not in receiver.bodies


@pytest.mark.parametrize("broken", ["", "00-0-1-01", "x" * 4000, f"00-{'0' * 32}-{CALLER}-01"])
def test_a_broken_parent_begins_a_trace_anew(
    broken: str, traced: Server, receiver: Receiver
) -> None:
    request_id = f"broken-{len(broken)}"
    assert ask(traced, request_id, 140, traceparent=broken).status_code == 200
    assert receiver.request(request_id).parent_id == ""


def test_what_the_caller_does_not_sample_is_not_sent(traced: Server, receiver: Receiver) -> None:
    other = TRACE[::-1]
    ask(traced, "unsampled", 134, traceparent=f"00-{other}-{CALLER}-00")
    ask(traced, "sampled", 135)
    receiver.request("sampled")
    assert other not in {span.trace_id for span in receiver.spans}
    (line,) = lines_of(traced, "unsampled")
    assert line["trace_id"] == other


def test_a_refused_request_tells_its_code_and_nothing_of_the_caller(
    traced: Server, receiver: Receiver
) -> None:
    body = {"model": SECRET_WORDS, "messages": [{"role": "user", "content": SECRET_WORDS}]}
    headers = {"x-request-id": "refused"}
    httpx.post(f"{traced.url}/v1/chat/completions?{SECRET_WORDS}", json=body, headers=headers)
    request = receiver.request("refused")
    assert request.attributes["error.type"] == "model_not_found"
    assert request.attributes["http.response.status_code"] == 404
    assert not request.is_error  # ours are, the caller's are not
    assert SECRET_WORDS.encode() not in receiver.bodies


def _ask_often(server: Server, name: str) -> None:
    for number in range(3):
        assert ask(server, f"{name}-{number}", 150 + number).status_code == 200


def test_a_collector_that_hangs_or_is_gone_is_nothing_to_requests_nor_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "20")  # of spans: fewer than are made here
    monkeypatch.setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with socket.create_server(("127.0.0.1", 0)) as collector:
        endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}/v1/traces"
        with running(traces_endpoint=endpoint) as server:
            _ask_often(server, "hanging")
            collector.close()
            _ask_often(server, "gone")
            begun = time.monotonic()
            assert server.stop() == 0
            assert time.monotonic() - begun < 8
    told = "".join(server.lines)
    assert "export" in told
    assert "Traceback" not in told


def test_what_is_left_is_sent_at_the_end(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "60000")
    with running(traces_endpoint=f"{receiver.url}/v1/traces") as server:
        ask(server, "last", 160)
        server.stop()
    receiver.request("last", seconds=1)
