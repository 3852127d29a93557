"""A lost worker is an event: noticed at once, its jobs ended by name, and started again."""

import itertools
import os
import signal
import time

import pytest

from tests.fakes import expected_embeddings, expected_tokens
from tests.workers.harness import (
    children,
    image_job,
    last_events,
    prompt_job,
    run,
    running,
    script,
)
from workers.keeper import next_wait
from workers.messages import (
    Failed,
    Finished,
    Loading,
    Ready,
    Taken,
    Tokens,
)
from workers.pool import WorkerStartError
from workers.wire import pack

pytestmark = pytest.mark.slow

DIE, HANG, DIE_LATER = 61, 93, 59  # see PROMPT_FAULTS
READY = pack(
    Ready(embedding_bytes_per_token=1, max_context_tokens=1, kv_cache_tokens=1, load_seconds=1.0)
)


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
                Failed(job_id="held", kind="killed", message="worker-0 was killed by SIGKILL")
            ]
            view = harness.pool.fleet().workers[0]
            assert (view.ready, view.in_flight) == (False, 0)
            await harness.until(lambda: harness.num_ready() == 2)
            harness.pool.send(0, prompt_job("next", [4]))
            await harness.until(lambda: bool(last_events(harness.of("next"))))
            assert isinstance(harness.of("next")[-1], Finished)

    run(scenario)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("os.kill(os.getpid(), 9)", "killed"),
        ("os.kill(os.getpid(), 11)", "lost"),
        ("os._exit(3)", "lost"),
        ("link.sendall(b'\\xff' * 9000); time.sleep(60)", "lost"),
        ("time.sleep(60)", "lost"),
    ],
    ids=["killed", "fault of memory", "exit", "garbage", "stuck"],
)
def test_a_kill_from_outside_is_told_from_what_a_job_may_have_done(end: str, kind: str) -> None:
    """The pool kills as well, those that send garbage or are stuck."""

    async def scenario() -> None:
        ends_on_a_job = script(f"link.sendall({READY!r}); link.recv(9); {end}")
        async with running(command=ends_on_a_job, silent_seconds=0.5) as harness:
            await harness.pool.wait_ready()
            harness.pool.send(0, prompt_job("held", [4]))
            await harness.until(lambda: bool(harness.of("held")))
            (event,) = harness.of("held")
            assert isinstance(event, Failed)
            assert event.kind == kind

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
            for job_id, kind in (("later", "killed"), ("too late", "gone")):
                (end,) = last_events(harness.of(job_id))
                assert isinstance(end, Failed)
                assert end.kind == kind

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
    frames = (
        READY
        + pack(Taken(job_id="ghost", is_copied=True, transfer_seconds=0.0))
        + pack(Tokens(job_id="ghost", token_ids=(1,)))
    )
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
