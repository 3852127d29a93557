"""Workers are found ready, their deaths are events, and none is left behind."""

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
from tests.workers.harness import Harness, children, image_job, prompt_job, run, running, script
from workers.keeper import next_wait
from workers.link import OUTBOX_BYTES
from workers.messages import (
    Abort,
    Encoded,
    Failed,
    Finished,
    FromWorker,
    Loading,
    Ready,
    Taken,
    Tokens,
)
from workers.pool import OutboxFull, WorkerStartError
from workers.wire import pack

pytestmark = pytest.mark.slow

DIE, HANG, DIE_LATER, RAISE = 61, 93, 59, 63
READY = pack(
    Ready(embedding_bytes_per_token=1, max_context_tokens=1, kv_cache_tokens=1, load_seconds=1.0)
)


def last_events(events: list[FromWorker]) -> list[Encoded | Finished | Failed]:
    return [event for event in events if isinstance(event, Encoded | Finished | Failed)]


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


def test_kill_is_noticed_at_once_and_the_worker_comes_back() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            harness.pool.send(0, prompt_job("held", [HANG]))
            assert harness.pool.fleet().workers[0].in_flight == 1
            killed_at = time.monotonic()
            os.kill(children()[0], signal.SIGKILL)
            await harness.until(lambda: harness.lost == [0])
            assert time.monotonic() - killed_at < 0.25
            assert harness.of("held") == [
                Failed(job_id="held", kind="lost", message="worker-0 was killed by SIGKILL")
            ]
            view = harness.pool.fleet().workers[0]
            assert (view.ready, view.in_flight) == (False, 0)
            await harness.until(lambda: harness.num_ready() == 2)
            harness.pool.send(0, prompt_job("next", [4]))
            await harness.until(lambda: bool(last_events(harness.of("next"))))
            assert isinstance(harness.of("next")[-1], Finished)

    run(scenario)


def test_arena_survives_the_death_of_its_worker() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            image = image_job(harness, "green", (0, 99, 0))
            harness.pool.send(0, image)
            await harness.until(lambda: bool(harness.of("green")))
            harness.pool.send(0, prompt_job("fatal", [DIE]))
            await harness.until(lambda: harness.num_ready() == 2)
            embeddings = expected_embeddings(bytes((0, 99, 0)) * 8, 2).tobytes()
            assert bytes(harness.pool.arena(0).view(image.target)) == embeddings
            harness.pool.send(0, prompt_job("answer", [9, 9], [image]))
            await harness.until(lambda: bool(last_events(harness.of("answer"))))
            tokens = [e.token_ids[0] for e in harness.of("answer") if isinstance(e, Tokens)]
            assert tuple(tokens) == expected_tokens([9, 9], [embeddings], 50)

    run(scenario)


def test_every_job_of_a_dead_worker_ends_once_and_by_name() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            harness.pool.send(0, image_job(harness, "image", (1, 2, 3)))
            harness.pool.send(0, prompt_job("later", [DIE_LATER]))
            harness.pool.send(0, prompt_job("other", [40], max_tokens=3))
            await harness.until(lambda: harness.lost == [0])
            harness.pool.send(0, prompt_job("too late", [1]))
            await harness.until(lambda: bool(harness.of("too late")))
            for job_id in ("later", "other", "image", "too late"):
                assert len(last_events(harness.of(job_id))) == 1
            assert isinstance(harness.of("later")[-2], Tokens)
            for job_id in ("later", "too late"):
                (end,) = last_events(harness.of(job_id))
                assert isinstance(end, Failed)
                assert end.kind == "lost"

    run(scenario)


def test_abort_ends_a_job_and_never_raises() -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            job = prompt_job("long", [31], max_tokens=1000)
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


@pytest.mark.parametrize("garbage", ["b'\\0\\0\\0\\2\\xc1\\xc1'", "b'\\xff' * 9000"])
def test_garbage_ends_the_worker_that_sent_it_and_nothing_else(garbage: str) -> None:
    async def scenario() -> None:
        sends_garbage = script(f"link.sendall({READY!r} + {garbage}); time.sleep(60)")
        async with running(command=sends_garbage) as harness:
            await harness.until(lambda: harness.lost == [0, 0])
            assert harness.num_ready() == 2  # it was started again
            assert len(children()) <= 1

    run(scenario)


def test_events_of_jobs_that_nobody_sent_are_dropped() -> None:
    frames = READY + pack(Taken(job_id="ghost")) + pack(Tokens(job_id="ghost", token_ids=(1,)))
    frames += pack(Failed(job_id="ghost", kind="internal", message="boo"))
    frames += pack(Loading(done=1, total=1))

    async def scenario() -> None:
        async with running(command=script(f"link.sendall({frames!r}); time.sleep(60)")) as harness:
            await harness.until(lambda: len(harness.events) >= 2)
            assert [type(event) for _, event in harness.events] == [Ready, Loading]

    run(scenario)


def test_listener_that_raises_costs_one_event(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with running() as harness:
            await harness.pool.wait_ready()
            harness.disliked_job = "first"
            harness.pool.send(0, prompt_job("first", [1]))
            await harness.until(lambda: bool(last_events(harness.of("first"))))
            harness.pool.send(0, prompt_job("second", [2]))
            await harness.until(lambda: bool(last_events(harness.of("second"))))
            assert isinstance(harness.of("second")[-1], Finished)

    run(scenario)
    assert "nobody could take" in caplog.text


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("fail-to-load", "worker-0 cannot start: ValueError: the weights are made of cheese"),
        ("die-while-loading", "worker-0 was killed by SIGKILL while loading"),
        ("hang-while-loading", "worker-0 was not ready within 1 seconds"),
    ],
)
def test_first_start_that_fails_says_why(model: str, reason: str) -> None:
    async def scenario() -> None:
        start_seconds = 1.0 if "hang" in model else 60.0
        async with running(model=model, start_seconds=start_seconds) as harness:
            with pytest.raises(WorkerStartError) as failure:
                await harness.pool.wait_ready()
            assert str(failure.value) == reason

    run(scenario)


def test_command_that_does_not_exist_fails_the_start() -> None:
    async def scenario() -> None:
        async with running(command=("/nonexistent/python",)) as harness:
            with pytest.raises(WorkerStartError, match=r"cannot be started: .*No such"):
                await harness.pool.wait_ready()

    run(scenario)


def test_waits_between_restarts_double() -> None:
    async def scenario() -> None:
        async with running(command=script(f"link.sendall({READY!r})")) as harness:
            lost_at: list[float] = []
            while len(lost_at) < 4:
                await harness.until(lambda: len(harness.lost) > len(lost_at))
                lost_at.append(time.monotonic())
            waits = [after - before for before, after in itertools.pairwise(lost_at)]
            for number, wait in enumerate(waits):
                assert wait >= 0.05 * 2**number

    run(scenario)


def test_wait_before_a_restart_starts_over_after_a_healthy_time() -> None:
    waits = [next_wait(last, 0.5, ready) for last, ready in [(0, 3), (8, 59), (20, 3), (20, 60)]]
    assert waits == [0.5, 16, 30, 0.5]


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
    assert wait_until_gone(pids, 2.0) == []
