"""The decode pool takes fair turns; a test decides the order of events, no clock does."""

import asyncio
import threading
from collections.abc import Callable

import anyio
import pytest

from gateway.images.decode_pool import DecodePool

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Gate:
    """Jobs that stop until they are let through, so that a test decides the order of events."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._changed = threading.Condition()
        self._open: set[str] = set()

    def job(self, name: str) -> Callable[[], str]:
        def run() -> str:
            with self._changed:
                self.started.append(name)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: name in self._open, timeout=5)
            return name

        return run

    def open(self, name: str) -> None:
        with self._changed:
            self._open.add(name)
            self._changed.notify_all()

    async def wait_started(self, count: int) -> list[str]:
        def wait() -> list[str]:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self.started) >= count, timeout=5)
                return list(self.started)

        return await anyio.to_thread.run_sync(wait)


async def _finish(gate: Gate, total: int, already: int = 0) -> list[str]:
    """Let the jobs through one after the other in the order in which they start."""
    for count in range(already, total):
        started = await gate.wait_started(count + 1)
        gate.open(started[count])
    return gate.started


async def test_one_image_waits_for_one_job_of_a_request_with_many() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(pool.run, "many", gate.job(f"many {number}"))
        await gate.wait_started(1)
        group.start_soon(pool.run, "one", gate.job("one"))
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 21)
    assert order.index("one") == 1


async def test_newcomers_do_not_starve_a_request_with_many() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(pool.run, "many", gate.job(f"many {number}"))
        for number in range(1, 41):
            group.start_soon(pool.run, f"new {number}", gate.job(f"new {number}"))
            if number % 2 == 0:  # two newcomers arrive for each job that ends
                started = await gate.wait_started(number // 2)
                await anyio.wait_all_tasks_blocked()
                gate.open(started[number // 2 - 1])
        order = await _finish(gate, 45, already=20)
    places = [order.index(f"many {number}") for number in range(5)]
    assert places == sorted(places)
    assert places[1] <= 6


async def test_requests_with_many_take_turns() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for name in "abc":
            for number in range(4):
                group.start_soon(pool.run, name, gate.job(f"{name}{number}"))
            await gate.wait_started(1)
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 12)
    rounds = [order[:1], order[1:4], order[4:7], order[7:10], order[10:]]
    assert [sorted(name[0] for name in names) for names in rounds] == [
        ["a"], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"], ["b", "c"]
    ]  # fmt: skip


async def test_no_more_jobs_run_than_there_are_threads() -> None:
    pool, gate = DecodePool(3), Gate()
    async with anyio.create_task_group() as group:
        for number in range(9):
            group.start_soon(pool.run, f"request {number}", gate.job(f"{number}"))
        await gate.wait_started(3)
        await anyio.wait_all_tasks_blocked()
        assert len(gate.started) == 3
        await _finish(gate, 9)


async def test_a_waiter_that_is_cancelled_gives_its_turn_away() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, "a", gate.job("first"))
        await gate.wait_started(1)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(pool.run, "b", gate.job("gone"))
            await anyio.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        group.start_soon(pool.run, "c", gate.job("last"))
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 2)
    assert order == ["first", "last"]


async def test_a_turn_that_comes_with_the_cancellation_is_passed_on() -> None:
    pool, gate = DecodePool(1), Gate()

    async def first() -> None:
        await pool.run("a", gate.job("first"))
        gone.cancel()  # in the very step that gave it the turn

    task = asyncio.create_task(first())
    await gate.wait_started(1)
    gone = asyncio.create_task(pool.run("b", gate.job("gone")))
    await anyio.wait_all_tasks_blocked()
    gate.open("first")
    with pytest.raises(asyncio.CancelledError):
        await gone
    await task
    gate.open("last")
    with anyio.fail_after(5):
        assert await pool.run("c", gate.job("last")) == "last"
    assert gate.started == ["first", "last"]


async def test_a_job_that_is_cancelled_keeps_its_thread_until_it_ends() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            with anyio.CancelScope() as scope:
                group.start_soon(_cancel_when_started, gate, scope)
                await pool.run("a", gate.job("first"))

        group.start_soon(leave)
        await gate.wait_started(1)
        group.start_soon(pool.run, "b", gate.job("second"))
        await anyio.wait_all_tasks_blocked()
        assert gate.started == ["first"]
        await _finish(gate, 2)


async def _cancel_when_started(gate: Gate, scope: anyio.CancelScope) -> None:
    await gate.wait_started(1)
    scope.cancel()


async def test_a_job_that_fails_gives_its_turn_back_and_leaves_nothing_behind() -> None:
    pool, gate = DecodePool(1), Gate()
    gate.open("next")
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", divmod, 1, 0)
    assert await pool.run("a", gate.job("next")) == "next"
    assert not pool._shares
    assert not pool._waiting


async def test_zero_threads_mean_one_per_core() -> None:
    assert await DecodePool(0).run("a", divmod, 7, 2) == (3, 1)
