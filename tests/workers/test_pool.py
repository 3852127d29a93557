"""Workers are found ready, do their jobs together, and none is left behind."""

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.fakes import CONTEXT_TOKENS, expected_embeddings, expected_tokens
from tests.workers.harness import (
    Harness,
    children,
    image_job,
    last_events,
    prompt_job,
    run,
    running,
)
from workers.link import OUTBOX_BYTES
from workers.messages import (
    Abort,
    Failed,
    Finished,
    Loading,
    Ready,
    Taken,
    Tokens,
)
from workers.pool import OutboxFull

pytestmark = pytest.mark.slow

HANG, SLOW = 93, 31  # see PROMPT_FAULTS


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rsplit(")", 1)[1].split()[0] != "Z"


def wait_until_gone(pids: list[int], seconds: float) -> list[int]:
    limit = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < limit:
        time.sleep(0.01)
    return left


def test_worker_is_ready_when_it_says_so_and_brings_its_facts() -> None:
    async def scenario() -> None:
        async with running("cpu:vision,cpu:language") as harness:
            assert not harness.pool.fleet().is_ready
            await harness.pool.wait_ready()
            fleet = harness.pool.fleet()
            assert fleet.is_ready
            (owner,), (engine,) = fleet.holding("vision"), fleet.holding("language")
            assert (owner.index, owner.name, owner.embedding_bytes_per_token) == (0, "worker-0", 32)
            assert (engine.index, engine.max_context_tokens) == (1, CONTEXT_TOKENS)
            of_owner = [event for index, event in harness.events if index == 0]
            assert of_owner[:2] == [Loading(done=0, total=2), Loading(done=2, total=2)]
            assert isinstance(of_owner[2], Ready)

    run(scenario)


def test_engine_reads_embeddings_that_another_worker_wrote() -> None:
    async def scenario() -> None:
        async with running("cpu:vision,cpu:vision,cpu:language") as harness:
            await harness.pool.wait_ready()
            images = [
                image_job(harness, "red", (200, 10, 10), owner=1),
                image_job(harness, "blue", (10, 10, 200), owner=0),
            ]
            for image in images:
                harness.pool.send(image.target.arena, image)
            await harness.until(lambda: bool(harness.of("red") and harness.of("blue")))
            prompt = [5, 5, 6, 6, 7]
            harness.pool.send(2, prompt_job("answer", prompt, images))
            await harness.until(lambda: bool(last_events(harness.of("answer"))))
            events = harness.of("answer")
            embeddings = [
                expected_embeddings(bytes(colour) * 8, 2).tobytes()
                for colour in ((200, 10, 10), (10, 10, 200))
            ]
            assert isinstance(events[0], Taken)
            tokens = [token for e in events if isinstance(e, Tokens) for token in e.token_ids]
            assert tuple(tokens) == expected_tokens(prompt, embeddings, 50)
            assert tuple(tokens) != expected_tokens(prompt, embeddings[::-1], 50)
            assert isinstance(events[-1], Finished)
            assert harness.pool.fleet().workers[2].in_flight == 0

    run(scenario)


def test_abort_ends_a_job_and_never_raises() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            job = prompt_job("long", [SLOW], max_tokens=1000)
            harness.pool.send(0, job)
            await harness.until(lambda: bool(harness.of("long")))
            for _ in range(2):
                harness.pool.send(0, Abort(job_id="long"))
            harness.pool.send(0, Abort(job_id="never seen"))
            await harness.until(lambda: bool(last_events(harness.of("long"))))
            end = harness.of("long")[-1]
            assert isinstance(end, Finished)
            assert end.reason == "abort"
            harness.pool.send(0, Abort(job_id="long"))
            await harness.pool.stop()
            harness.pool.send(0, Abort(job_id="long"))

    run(scenario)


def test_frame_of_three_megabytes_reaches_the_worker() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            num_tokens = 3 * (1 << 20) // 4
            harness.pool.send(0, prompt_job("big", np.zeros(num_tokens, "<i4").tolist()))
            await harness.until(lambda: bool(harness.of("big")))
            assert harness.of("big") == [
                Failed(
                    job_id="big",
                    kind="bad_input",
                    message=f"{num_tokens} tokens do not fit {CONTEXT_TOKENS}",
                )
            ]

    run(scenario)


def flood(harness: Harness) -> tuple[int, int, float]:
    """Send until the outbox is full: jobs and bytes that were taken, seconds of the slowest."""
    num_bytes, longest_seconds = 0, 0.0
    for number in itertools.count():
        job = prompt_job(f"job {number}", [0] * (1 << 18))
        started_at = time.monotonic()
        try:
            harness.pool.send(0, job)
        except OutboxFull:
            return number, num_bytes, longest_seconds
        longest_seconds = max(longest_seconds, time.monotonic() - started_at)
        num_bytes += len(job.token_ids)
        assert num_bytes < 3 * OUTBOX_BYTES
    raise AssertionError


def test_worker_that_does_not_read_gets_no_more_than_the_bound() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            harness.pool.send(0, prompt_job("stuck", [HANG]))
            number, num_bytes, longest_seconds = flood(harness)
            assert OUTBOX_BYTES <= num_bytes <= OUTBOX_BYTES + (3 << 20)
            assert longest_seconds < 0.5
            harness.pool.send(0, Abort(job_id="job 1"))
            os.kill(children()[0], signal.SIGKILL)
            await harness.until(lambda: harness.lost == [0])
            ends = [end for each in range(number) for end in last_events(harness.of(f"job {each}"))]
            assert len(ends) == number

    run(scenario)


def test_signals_to_the_whole_group_do_not_end_workers() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            for number in (signal.SIGINT, signal.SIGTERM):
                os.kill(children()[0], number)
            harness.pool.send(0, prompt_job("answer", [8]))
            await harness.until(lambda: bool(last_events(harness.of("answer"))))
            assert harness.lost == []

    run(scenario)


def test_stop_lets_workers_leave_with_status_zero(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    async def scenario() -> None:
        async with running("cpu:vision,cpu:language") as harness:
            await harness.pool.wait_ready()
            assert len(children()) == 2
            await harness.pool.stop()
            assert children() == []
            assert harness.lost == []

    run(scenario)
    for name in ("worker-0", "worker-1"):
        assert f"{name} exited with status 0" in caplog.text


@pytest.mark.parametrize("model", ["fake", "hang-while-loading"])
def test_stop_ends_workers_that_do_not_listen(model: str) -> None:
    async def scenario() -> None:
        async with running(model=model) as harness:
            if model == "fake":
                await harness.pool.wait_ready()
                harness.pool.send(0, prompt_job("stuck", [HANG]))
            else:
                await harness.until(lambda: bool(harness.events))
            started_at = time.monotonic()
            await harness.pool.stop(0.2)
            assert time.monotonic() - started_at < 2
            assert children() == []
            assert len(last_events(harness.of("stuck"))) == (model == "fake")

    run(scenario)


@pytest.mark.parametrize("model", ["fake", "hang-while-loading"])
def test_workers_end_with_the_gateway(model: str) -> None:
    lines = (
        "import asyncio, sys\n"
        "from tests.workers.harness import children, running\n"
        "async def main():\n"
        f"    async with running('cpu:vision,cpu:language', model={model!r}) as harness:\n"
        "        await harness.until(lambda: len({index for index, _ in harness.events}) == 2)\n"
        "        print(*children(), flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", lines], stdout=subprocess.PIPE) as gateway:
        assert gateway.stdout is not None
        pids = [int(pid) for pid in gateway.stdout.readline().split()]
        try:
            assert len(pids) == 2
            assert all(is_running(pid) for pid in pids)
        finally:
            gateway.kill()
    left = wait_until_gone(pids, 2.0)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []
