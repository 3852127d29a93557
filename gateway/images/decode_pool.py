"""The pool that decodes images: threads which take turns between requests."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import NamedTuple, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from workers.machine import num_cores

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class Turn(NamedTuple):
    """The place of a job in the order; smaller goes first."""

    round: int
    is_continued: bool  # the request had other jobs when this one came
    arrival: int  # differs between any two jobs


class _Share:
    """The part of one request in a pool: its last round, and its jobs that have not ended."""

    def __init__(self, last_round: int) -> None:
        self.last_round = last_round
        self.num_jobs = 0


class DecodePool:
    """Worker threads that take turns between requests; owned by the event loop.

    Each job of a request belongs to a round of its own, and rounds go one after the other. Who
    comes new joins the next round, at its front. So a request with one image waits for at most one
    job of a request with twenty, and newcomers without end do not starve the twenty.
    """

    def __init__(self, num_threads: int) -> None:
        """`num_threads` of 0 means one per core."""
        self._num_free = num_threads or num_cores()
        self._limiter = anyio.CapacityLimiter(self._num_free)
        self._waiting: list[tuple[Turn, anyio.Event]] = []  # a heap
        self._shares: dict[str, _Share] = {}
        self._round = 0
        self._num_arrived = 0

    async def run(
        self, request_id: str, function: Callable[[*Arguments], Result], *args: *Arguments
    ) -> Result:
        """Run a blocking function in a thread when it is the request's turn.

        A caller that is cancelled while it waits gives its turn away; one that is cancelled while
        the function runs leaves when the function ends, because a thread cannot be stopped.
        """
        share = self._shares.setdefault(request_id, _Share(self._round))
        share.last_round = max(share.last_round, self._round) + 1
        turn = Turn(share.last_round, share.num_jobs > 0, self._num_arrived)
        self._num_arrived += 1
        share.num_jobs += 1
        try:
            await self._wait_for(turn)
            try:
                return await anyio.to_thread.run_sync(function, *args, limiter=self._limiter)
            finally:
                self._pass_turn_on()
        finally:
            share.num_jobs -= 1
            if share.num_jobs == 0:
                del self._shares[request_id]

    async def _wait_for(self, turn: Turn) -> None:
        if self._num_free:
            self._num_free -= 1
            self._round = max(self._round, turn.round)
            return
        waiter = (turn, anyio.Event())
        heappush(self._waiting, waiter)
        try:
            await waiter[1].wait()
        except anyio.get_cancelled_exc_class():
            if waiter in self._waiting:
                self._waiting.remove(waiter)
                heapify(self._waiting)
            else:
                self._pass_turn_on()
            raise

    def _pass_turn_on(self) -> None:
        if not self._waiting:
            self._num_free += 1
            return
        turn, is_next = heappop(self._waiting)
        self._round = turn.round
        is_next.set()
