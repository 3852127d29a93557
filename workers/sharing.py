"""Which memory holds each worker's embeddings, and which engines have mapped it."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from config.workers import WorkerSpec
from workers.messages import DropPool, FeaturePool, FromWorker, MapPool, PoolMapped, Ready
from workers.ranges import Allocator

logger = logging.getLogger(__name__)

Tell = Callable[[int, MapPool | DropPool], None]


class Sharing:
    """The feature pools of all owners over all lives of their processes. Owned by the fleet.

    `places` says where the embeddings of each worker belong, by its index: in its arena, or in
    the pool that its process has made. A pool is closed when that process ends.
    """

    def __init__(
        self, places: Sequence[Allocator], specs: Sequence[WorkerSpec], tell: Tell
    ) -> None:
        """`tell` sends a message to the worker of an index, if that is ready."""
        self.places = list(places)
        self._engines = [index for index, spec in enumerate(specs) if "language" in spec.roles]
        self._tell = tell
        self._pools: dict[int, FeaturePool] = {}  # of owners that are ready
        self._ready: set[int] = set()  # engines that are
        self._asked: set[tuple[int, int]] = set()  # engines and the pools that they shall map
        self._failure = ""  # the first one
        self._answered = asyncio.Event()
        self._answered.set()

    async def wait_answered(self) -> str:
        """Wait until no engine owes an answer; the first reason why a pool was not mapped."""
        await self._answered.wait()
        return self._failure

    def hear(self, worker: int, event: FromWorker) -> None:
        """Take what matters here of what a worker says."""
        match event:
            case Ready():
                self._welcome(worker, event.feature_pool)
            case PoolMapped():
                self._take_answer(worker, event)

    def lose(self, worker: int) -> None:
        """A process has ended: its pool is gone, and what it had mapped."""
        self._ready.discard(worker)
        pool = self._pools.pop(worker, None)
        if pool is not None:
            self.places[worker].close()
            for engine in self._ready:
                self._tell(engine, DropPool(number=pool.number))
        number = pool.number if pool else 0
        self._asked = {pair for pair in self._asked if pair[0] != worker and pair[1] != number}
        self._look_answered()

    def _welcome(self, worker: int, pool: FeaturePool | None) -> None:
        if worker in self._engines:
            self._ready.add(worker)
            for owner, other in self._pools.items():
                self._ask(worker, owner, other)
        if pool is not None:
            self._pools[worker] = pool
            self.places[worker] = Allocator(worker, pool.num_bytes, pool.number)
            for engine in self._ready - {worker}:
                self._ask(engine, worker, pool)

    def _ask(self, engine: int, owner: int, pool: FeaturePool) -> None:
        self._asked.add((engine, pool.number))
        self._answered.clear()
        self._tell(engine, MapPool(worker=owner, pool=pool))

    def _take_answer(self, engine: int, answer: PoolMapped) -> None:
        self._asked.discard((engine, answer.number))
        if answer.failure:
            failure = f"worker-{engine} {answer.failure}. FOVEA_FEATURE_TRANSPORT=cpu does without"
            logger.error(failure)
            self._failure = self._failure or failure
        self._look_answered()

    def _look_answered(self) -> None:
        if not self._asked:
            self._answered.set()
