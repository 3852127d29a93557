"""Workers that get stuck are replaced, those that merely take long are not; the model is fake."""

import concurrent.futures
import os
import signal
import time
from collections.abc import Iterator

import httpx
import pytest
from PIL import Image

from tests.journeys.server import Server, running
from tests.pictures import ask, image_part

pytestmark = pytest.mark.slow

HANG = "~"  # see PROMPT_FAULTS


@pytest.fixture
def server() -> Iterator[Server]:
    limits = {"silent_seconds": "1.5", "turn_seconds": "5", "restart_seconds": "0.1"}
    with running("tests.fake_gateway", **limits) as server:
        yield server


def until_replaced(server: Server, worker: int) -> None:
    """Readiness fails, then the worker is another one."""
    limit = time.monotonic() + 20
    while httpx.get(f"{server.url}/ready").status_code == 200:
        assert time.monotonic() < limit, "readiness never failed"
        time.sleep(0.01)
    server.wait_ready()
    assert server.workers() != [worker]


def test_a_stopped_worker_is_replaced_and_what_it_had_begun_is_answered(server: Server) -> None:
    (worker,) = server.workers()
    asked = ask(server.model, "go on @", max_tokens=60, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.post, asked)
        server.wait_for("fovea_requests_running", 1)
        os.kill(worker, signal.SIGSTOP)
        until_replaced(server, worker)
        answer = waiting.result(30)
    assert any("no sign of life for 1.5 seconds" in line for line in server.lines)
    assert answer.json()["choices"] == server.post(asked).json()["choices"]


def test_a_worker_stuck_in_a_step_is_replaced_and_who_did_that_twice_is_fenced(
    server: Server,
) -> None:
    (worker,) = server.workers()
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(server.post, ask(server.model, f"stop {HANG}"))
        until_replaced(server, worker)
        response = waiting.result(30)
    assert any("at one step for more than 5 seconds" in line for line in server.lines)
    assert response.json()["error"]["code"] == "request_fenced"


def test_a_long_pass_is_not_taken_for_a_hang(server: Server) -> None:
    """3 s of encoding, twice the time that a worker may be silent."""
    slow = image_part(Image.new("RGB", (90, 41), (13, 5, 0)))
    workers = server.workers()
    assert server.post(ask(server.model, slow)).status_code == 200
    assert server.workers() == workers
