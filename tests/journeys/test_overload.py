"""More than fits: who is refused, how fast, with which words, and who still gets in."""

import concurrent.futures
import contextlib
import socket
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.journeys.server import Server, running, start
from tests.pictures import ask, image_part, noise

pytestmark = pytest.mark.slow

FAKE = "tests.fake_gateway"
SLOW = "@"  # see PROMPT_FAULTS
UPLOAD_BYTES = 20 << 20


def pictures(seed: int, count: int, side: int = 300) -> list[dict[str, Any]]:
    return [image_part(noise(seed + n, (side + n, side - n)), "JPEG") for n in range(count)]


def slow(server: Server, **fields: Any) -> dict[str, Any]:
    """A request of some seconds."""
    return ask(server.model, f"slow {SLOW}", ignore_eos=True, **({"max_tokens": 150} | fields))


def limit_of(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 429, response.text
    assert int(response.headers["retry-after"]) >= 1
    limit: dict[str, Any] = response.json()["error"]["limit"]
    return limit


@pytest.fixture
def threads() -> Iterator[concurrent.futures.ThreadPoolExecutor]:
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        yield pool


def test_fifty_requests_of_eight_images_are_refused_before_any_image_work(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    with running(FAKE, max_running_requests=1, log_level="warning") as server:
        first = threads.submit(server.post, slow(server))
        server.wait_for("fovea_requests_running", 1)
        body = ask(server.model, *pictures(1, 8, 900))
        refused, seconds = [], []
        with httpx.Client() as client:
            for _ in range(50):
                begun_at = time.monotonic()
                refused.append(client.post(f"{server.url}/v1/chat/completions", json=body))
                seconds.append(time.monotonic() - begun_at)
        assert statistics.median(seconds) < 0.25  # most of it is the client's own work
        hit = {"name": "max_running_requests", "value": 1, "limit": 1}
        assert [limit_of(response) for response in refused] == [hit] * 50
        assert server.metric("fovea_stage_seconds_count", stage="decode") == 0
        assert server.metric("fovea_stage_seconds_count", stage="parse") == 1
        assert first.result(30).status_code == 200


def test_who_asks_for_the_connections_end_reads_why_its_upload_is_refused(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    """Such a connection is to be closed behind the refusal, while the upload is on its way."""
    with running(FAKE, max_running_requests=1, max_body_bytes=1 << 20) as server:
        wanted = {
            "POST /v1/chat/completions": (413, "body_too_large"),
            "POST /v1/nowhere": (404, "unknown_route"),
            "PUT /v1/chat/completions": (405, "method_not_allowed"),
        }
        assert {line: _upload(server, line) for line in wanted} == wanted
        first = threads.submit(server.post, slow(server))
        server.wait_for("fovea_requests_running", 1)
        assert _upload(server, "POST /v1/chat/completions") == (429, "overloaded")
        assert first.result(30).status_code == 200


def _upload(server: Server, line: str) -> tuple[int, str]:
    """Status and code that a client reads which sends all of its body first."""
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(head.encode() + bytes(UPLOAD_BYTES))
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    told, _, body = answer.partition(b"\r\n\r\n")
    return int(told.split(b" ")[1]), orjson.loads(body)["error"]["code"]


def test_a_request_takes_a_place_for_each_of_its_choices(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    with running(FAKE, max_running_requests=3, log_level="warning") as server:
        first = threads.submit(server.post, slow(server, n=3))
        server.wait_for("fovea_worker_running", 3)
        assert limit_of(server.post(ask(server.model, "one more")))["value"] == 3
        assert first.result(30).status_code == 200
        assert server.post(ask(server.model, "one more")).status_code == 200


def test_text_gets_in_while_images_are_refused(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    with running(FAKE, max_running_requests=8, log_level="warning") as server:
        bodies = [
            ask(server.model, *pictures(10 * n, 1), f"{SLOW} {n}", ignore_eos=True, max_tokens=100)
            for n in range(6)
        ]
        waiting = [threads.submit(server.post, body) for body in bodies]
        server.wait_for("fovea_requests_running", 6)
        server.wait_for("fovea_images_encoded_total", 6)
        refused = limit_of(server.post(ask(server.model, *pictures(500, 1))))
        assert refused == {"name": "max_image_requests", "value": 6, "limit": 6}
        assert server.post(ask(server.model, "hello")).status_code == 200
        assert {each.result(30).status_code for each in waiting} == {200}
        assert server.post(ask(server.model, *pictures(500, 1))).status_code == 200


def test_many_images_at_once_hold_bounded_bytes_and_every_request_has_one_end(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    with running(FAKE, max_bytes_in_flight=4 << 20, arena_bytes=4 << 20) as server:
        bodies = [ask(server.model, *pictures(100 * n, 10, 700)) for n in range(30)]
        ends = Counter(each.status_code for each in threads.map(server.post, bodies))
        assert set(ends) == {200, 429}
        server.wait_for("fovea_requests_running", 0)
        server.wait_for("fovea_arena_used_bytes", 0)
        assert server.post(bodies[0]).status_code == 200


def test_callers_that_leave_at_once_harm_no_worker(
    threads: concurrent.futures.ThreadPoolExecutor,
) -> None:
    def leave(number: int) -> None:
        body = ask(server.model, *pictures(1000 + 10 * number, 3))
        patience = httpx.Timeout(0.02 + 0.01 * (number % 9), connect=5)
        with contextlib.suppress(httpx.TimeoutException):
            httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=patience)

    with running(FAKE, workers="cpu:vision,cpu:vision,cpu:language") as server:
        list(threads.map(leave, range(60)))
        server.wait_for("fovea_requests_running", 0)
        server.wait_for("fovea_arena_used_bytes", 0)
        assert server.metric("fovea_worker_lost_total") == 0
        assert server.post(ask(server.model, *pictures(5, 3))).status_code == 200


@pytest.mark.parametrize("num_owners", [2, 8])
def test_any_number_of_images_goes_to_any_number_of_owners(num_owners: int) -> None:
    """Also fewer images than owners; the answer is that of a single owner."""
    workers = ",".join(["cpu:vision"] * num_owners + ["cpu:language"])
    with running(FAKE, log_level="warning") as single:
        bodies = [ask(single.model, *pictures(70, count), "what?") for count in (1, 5)]
        wanted = [single.post(body).json()["choices"] for body in bodies]
    with running(FAKE, workers=workers, log_level="warning") as server:
        assert [server.post(body).json()["choices"] for body in bodies] == wanted
        assert server.metric("fovea_placements_total") == 5  # the first picture was kept


def test_it_is_not_ready_before_a_request_would_be_answered() -> None:
    process = start(FAKE, port=0, log_level="info")
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if "Fovea is ready" in line:
                break
        url = line.split(" to ")[1].split("/v1")[0]
        assert httpx.get(f"{url}/ready").status_code == 200
        answer = httpx.post(f"{url}/v1/chat/completions", json=ask("demo_model", "hello"))
        assert answer.status_code == 200
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()
