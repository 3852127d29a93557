"""A worker that stands still is told from one that computes, or whose gateway stood still."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from config.settings import WorkerSettings
from workers.messages import Alive
from workers.vigil import Vigil

SILENT, TURN = 0.08, 0.16  # seconds


def vigil() -> Vigil:
    return Vigil(WorkerSettings(silent_seconds=SILENT, turn_seconds=TURN))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 5))


async def beat(watched: Vigil, seconds: float, turn_seconds: float | None = None) -> None:
    """Signs of life for so long, of a loop that waits, or whose turn has begun before."""
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        watched.hear(Alive(turn_seconds=0 if turn_seconds is None else turn_seconds + passed))
        await asyncio.sleep(0.01)


def test_a_worker_without_signs_of_life_is_stuck_when_its_time_is_up() -> None:
    async def work() -> None:
        watched = vigil()
        watched.hear(Alive(turn_seconds=0))
        begun = time.monotonic()
        assert await watched.watch() == "gave no sign of life for 0.08 seconds"
        assert time.monotonic() - begun >= SILENT

    run(work())


def test_a_worker_that_is_not_ready_yet_may_be_silent() -> None:
    async def work() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(vigil().watch(), 2 * TURN)

    run(work())


def test_a_long_turn_is_no_silence_until_it_is_too_long() -> None:
    async def work() -> None:
        watched = vigil()
        watch = asyncio.create_task(watched.watch())
        await beat(watched, 0.75 * TURN, turn_seconds=0.001)
        assert not watch.done()
        await beat(watched, TURN, turn_seconds=0.75 * TURN)
        assert await watch == "was at one step for more than 0.16 seconds"

    run(work())


def test_a_worker_that_waits_for_work_may_do_so_for_ever() -> None:
    async def work() -> None:
        watched = vigil()
        watch = asyncio.create_task(watched.watch())
        await beat(watched, 2 * TURN)
        assert not watch.done()
        watch.cancel()

    run(work())


def test_time_in_which_the_gateway_stood_still_does_not_count() -> None:
    async def work() -> None:
        watched = vigil()
        watched.hear(Alive(turn_seconds=0.001))
        watch = asyncio.create_task(watched.watch())
        await asyncio.sleep(0)
        time.sleep(2 * TURN)  # noqa: ASYNC251 - the event loop shall stand still
        await asyncio.sleep(0)
        assert not watch.done()
        await beat(watched, SILENT)
        assert not watch.done()
        watch.cancel()

    run(work())
