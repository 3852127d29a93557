"""Embeddings in pools of their owners' processes: same answers, and what death takes and leaves.

The pools are shared memory and everything else is real; `tests/gpu` has them on a device.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.journeys.server import Server, running, start
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

POOLED = "tests.pooled_gateway"
COLOURS = ("red", "green", "blue", "yellow", "purple")


@pytest.fixture(scope="module")
def pooled() -> Iterator[Server]:
    with running(POOLED, workers="cpu:vision,cpu:vision,cpu:language") as server:
        yield server


@dataclass
class Pair:
    """An owner, worker-0, and an engine, worker-1, each with a process of its own."""

    server: Server
    pids: dict[str, int]  # by name

    def kill(self, worker: str) -> None:
        """End a worker and return once another process has taken its place."""
        lost = self.server.metric("fovea_worker_lost_total", worker=worker)
        os.kill(self.pids.pop(worker), signal.SIGKILL)
        self.server.wait_for("fovea_worker_lost_total", lost + 1, worker=worker)
        self.server.wait_ready()
        (self.pids[worker],) = set(self.server.workers()) - set(self.pids.values())


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with running(POOLED, workers="cpu:vision,cpu:language") as server:
        yield Pair(
            server, dict(zip(("worker-0", "worker-1"), sorted(server.workers()), strict=True))
        )


def body(server: Server, colour: str, size: tuple[int, int]) -> dict[str, Any]:
    parts = [image_part(draw_shape(colour, "circle", size)), text_part("What colour is this?")]
    return {"model": server.model, "messages": [{"role": "user", "content": parts}]}


def ask(server: Server, colour: str, size: tuple[int, int]) -> str:
    response = server.post(body(server, colour, size)).raise_for_status()
    return str(response.json()["choices"][0]["message"]["content"])


def embedding_bytes(server: Server) -> dict[str, float]:
    """What engines took in so far, by way; ways that were not used are left out."""
    ways = ("same_process", "cpu", "cuda_ipc")
    found = {way: server.metric("fovea_embedding_bytes_total", transport=way) for way in ways}
    return {way: num_bytes for way, num_bytes in found.items() if num_bytes}


def check_idle(server: Server) -> None:
    for name in ("fovea_feature_pool_used_bytes", "fovea_arena_used_bytes"):
        server.wait_for(name, 0)


def test_answers_are_those_of_the_arenas(pooled: Server, split: Server) -> None:
    for number, colour in enumerate(COLOURS):
        size = (150 + number, 131 - number)
        assert ask(pooled, colour, size) == ask(split, colour, size) == colour
    assert set(embedding_bytes(pooled)) == {"cuda_ipc"}
    assert set(embedding_bytes(split)) == {"cpu"}
    assert pooled.metric("fovea_stage_seconds_count", stage="transfer") == len(COLOURS)
    check_idle(pooled)


def test_an_image_is_kept_in_its_owners_pool(pooled: Server) -> None:
    assert ask(pooled, "red", (171, 140)) == "red"
    images = pooled.metric("fovea_images_encoded_total")
    assert ask(pooled, "red", (171, 140)) == "red"
    assert pooled.metric("fovea_images_encoded_total") == images


def test_one_process_reads_its_own_pool_in_place() -> None:
    with running(POOLED, workers="cpu:vision+language") as server:
        for number, colour in enumerate(COLOURS):
            assert ask(server, colour, (160 + number, 128)) == colour
        assert set(embedding_bytes(server)) == {"same_process"}
        check_idle(server)


def test_one_process_reads_its_own_arena_in_place(demo: Server) -> None:
    before = embedding_bytes(demo).get("same_process", 0)
    assert ask(demo, "green", (143, 120)) == "green"
    assert embedding_bytes(demo)["same_process"] > before


def test_a_pool_goes_with_its_owner_and_the_next_one_is_mapped(pair: Pair) -> None:
    server, engine = pair.server, pair.pids["worker-1"]
    for life in range(1, 3):
        assert ask(server, "blue", (166, 133)) == "blue"
        assert ask(server, "red", (150 + life, 133)) == "red"
        assert ask(server, "blue", (166, 133)) == "blue"
        assert server.metric("fovea_images_encoded_total") == 1 + life  # the engine knows the blue
        pair.kill("worker-0")
        assert server.metric("fovea_embedding_idle_bytes") == 0
    assert pair.pids["worker-1"] == engine
    assert ask(server, "blue", (166, 133)) == "blue"
    check_idle(server)


def test_a_new_engine_reads_what_owners_have_kept(pair: Pair) -> None:
    assert ask(pair.server, "yellow", (161, 134)) == "yellow"
    images = pair.server.metric("fovea_images_encoded_total")
    pair.kill("worker-1")
    assert ask(pair.server, "yellow", (161, 134)) == "yellow"
    assert pair.server.metric("fovea_images_encoded_total") == images
    check_idle(pair.server)


def test_requests_under_way_are_begun_again_when_the_owner_dies(pair: Pair) -> None:
    server = pair.server
    bodies = [body(server, COLOURS[n % 5], (240 + n, 300 - n)) for n in range(16)]
    with ThreadPoolExecutor(8) as threads:
        answers = [threads.submit(server.post, each) for each in bodies]
        answers[2].result()
        pair.kill("worker-0")
        responses = [answer.result() for answer in answers]
    codes = {each.json()["error"]["code"] for each in responses if each.status_code != 200}
    assert codes <= {"not_ready"}, "only who came while no owner was there is refused"
    texts = {n: each for n, each in enumerate(responses) if each.status_code == 200}
    assert len(texts) > 8
    for number, response in texts.items():
        assert response.json()["choices"][0]["message"]["content"] == COLOURS[number % 5]
    check_idle(server)
    assert ask(server, "green", (251, 222)) == "green"


def outcome(process: subprocess.Popen[str]) -> str:
    """What a gateway says that does not come up."""
    text, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    return text


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("no-export", "worker-0 cannot start: cpu cannot share embeddings: the driver does not"),
        ("no-open", "worker-1 cannot map the embeddings of worker-0: the driver does not"),
    ],
)
def test_what_the_driver_refuses_stops_the_start(
    kind: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POOL_KIND", kind)
    text = outcome(start(POOLED, workers="cpu:vision,cpu:language"))
    assert reason in text
    assert "FOVEA_FEATURE_TRANSPORT=cpu" in text


def test_what_no_other_process_reads_needs_no_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POOL_KIND", "no-export")
    with running(POOLED, workers="cpu:vision+language") as server:
        assert ask(server, "red", (155, 129)) == "red"


def test_a_transport_that_cannot_be_had_stops_the_start_with_the_reason() -> None:
    text = outcome(start(feature_transport="cuda_ipc"))
    assert "FOVEA_FEATURE_TRANSPORT=cuda_ipc cannot be had: worker-0 is on the device cpu" in text
