"""However it is stopped, and whatever its workers do then: it ends in time and leaves nothing."""

import concurrent.futures
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from config.settings import DEMO_MODEL
from tests.journeys.server import ROOT, Server, refused_start, running, start
from tests.pictures import ask

pytestmark = pytest.mark.slow

FAKE = "tests.fake_gateway"
BOTH = "cpu:vision+language,cpu:vision+language"


def leftovers(processes: list[int]) -> list[int]:
    """Of these processes, those that still run."""
    return [each for each in processes if Path(f"/proc/{each}").exists()]


def check_gone(server: Server, processes: list[int], seconds: float) -> None:
    """The gateway ends well within so many seconds, and with it all that it had."""
    assert server.process.wait(seconds) == 0
    assert leftovers(processes) == []


def test_a_stopped_worker_does_not_keep_the_gateway_from_ending() -> None:
    with running(FAKE, workers=BOTH) as server:
        workers = server.workers()
        os.kill(workers[0], signal.SIGSTOP)
        server.process.send_signal(signal.SIGTERM)
        check_gone(server, workers, 10)


def test_a_request_in_a_stuck_worker_ends_by_name_when_time_to_drain_is_up() -> None:
    with running(FAKE, drain_seconds="1") as server:
        workers = server.workers()
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(server.post, ask(server.model, "hang ~"))
            server.wait_for("fovea_requests_running", 1)
            server.process.send_signal(signal.SIGTERM)
            response = waiting.result(20)
        assert (response.status_code, response.json()["error"]["code"]) == (503, "not_ready")
        check_gone(server, workers, 10)


def test_while_it_drains_new_requests_are_refused_and_probes_answered() -> None:
    with running(FAKE) as server, httpx.Client(timeout=30) as client:
        chat = f"{server.url}/v1/chat/completions"
        asked = ask(server.model, "slow @", stream=True, max_tokens=100, ignore_eos=True)
        with client.stream("POST", chat, json=asked) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            limit = time.monotonic() + 5
            while client.get(f"{server.url}/ready").status_code == 200:
                assert time.monotonic() < limit
            refused = client.post(chat, json=ask(server.model, "new"))
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            assert client.get(f"{server.url}/health").status_code == 200
            assert list(lines)[-2:] == ["data: [DONE]", ""]
        assert server.process.wait(10) == 0


@pytest.mark.parametrize("fault", ["hang-while-loading", "die-while-loading"])
def test_a_signal_while_workers_load_or_are_away_ends_it_at_once(
    fault: str, tmp_path: Path
) -> None:
    model = shutil.copytree(DEMO_MODEL, tmp_path / fault)
    process = start(FAKE, model=model)
    assert process.stdout is not None
    assert any("starting worker-0" in line for line in process.stdout)
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) in {0, 1}  # a worker that died at its first start is a failed start
    process.stdout.close()


def test_a_signal_while_a_worker_waits_to_be_started_again_ends_it_at_once() -> None:
    with running(FAKE, restart_seconds="30") as server:
        (worker,) = server.workers()
        os.kill(worker, signal.SIGKILL)
        server.wait_for("fovea_worker_lost_total", 1)
        server.process.send_signal(signal.SIGTERM)
        check_gone(server, [worker], 5)


def test_workers_end_with_a_gateway_that_is_killed() -> None:
    with running(FAKE, workers=BOTH) as server:
        workers = server.workers()
        server.process.kill()
        limit = time.monotonic() + 5
        while leftovers(workers):
            assert time.monotonic() < limit
            time.sleep(0.01)


def test_what_cannot_work_is_said_within_seconds_and_starts_no_worker(tmp_path: Path) -> None:
    broken = shutil.copytree(DEMO_MODEL, tmp_path / "broken")
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    for name, value, reason in (
        ("model", broken, "download the file again"),
        ("media_allowed_domains", ",", "no host is named"),
        ("workers", "cuda:7:vision+language", "this process sees"),
    ):
        begun = time.monotonic()
        said = refused_start(**{name: value})
        assert reason in said
        assert "starting worker" not in said
        assert time.monotonic() - begun < 8, "that is not fast, even on a busy machine"


def test_a_failed_start_of_the_command_prints_one_line(tmp_path: Path) -> None:
    environment = {**os.environ, "FOVEA_MODEL": str(tmp_path / "nowhere"), "FOVEA_PORT": "0"}
    command = [sys.executable, "-m", "gateway", "serve"]
    done = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("fovea: FOVEA_MODEL=")
