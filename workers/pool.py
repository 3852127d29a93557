"""The fleet of worker processes: specs in, jobs out to them, their events and losses back."""

import asyncio
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from config.settings import Settings
from config.workers import ROLES, WorkerSpec, worker_environment
from workers.arena import Arena
from workers.keeper import Job, Keeper, Listener, OutboxFull, WorkerView
from workers.link import Launch
from workers.machine import num_cores
from workers.messages import Abort, DropPool, FromWorker, MapPool, Start, Vocabulary
from workers.ranges import Allocator
from workers.sharing import Sharing
from workers.transport import Transport, is_shared

__all__ = ["Fleet", "OutboxFull", "Pool", "WorkerStartError", "WorkerView"]

COMMAND = (sys.executable, "-m", "workers.entry")
GRACE_SECONDS = 5.0
NO_VOCABULARY = Vocabulary((), ())


class WorkerStartError(Exception):
    """A worker could not start at all; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All workers at one moment, by index."""

    workers: tuple[WorkerView, ...]

    @property
    def is_ready(self) -> bool:
        """Whether every role is held by a worker that takes jobs."""
        return all(self.holding(role) for role in ROLES)

    def holding(self, role: str) -> tuple[WorkerView, ...]:
        """The workers that take jobs of a role now."""
        return tuple(worker for worker in self.workers if worker.ready and role in worker.roles)


class Pool:
    """The worker processes and the arenas. Made, used and stopped in the gateway's event loop.

    `on_event` gets each message with the worker's index: progress, readiness, and of every job
    sent its events, the last of which is one `LastEvent`; Failed of kind `lost` if the worker
    dies. `on_lost` is called after that.
    """

    def __init__(  # noqa: PLR0913 - each of them is another part of the house
        self,
        settings: Settings,
        specs: Sequence[WorkerSpec],
        *,
        on_event: Callable[[int, FromWorker], None],
        on_lost: Callable[[int], None],
        vocabulary: Vocabulary = NO_VOCABULARY,
        transport: Transport = "cpu",
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        """`transport` is how embeddings travel; what `auto` means is decided by then.

        Engines keep answers to a grammar by `vocabulary`; without one they allow no token.
        """
        num_bytes = settings.workers.arena_bytes
        threads = settings.workers.threads_per_worker or _share_of_cores(len(specs))
        self._arenas = tuple(Arena(index, num_bytes) for index in range(len(specs)))
        launch = Launch(
            command=command,
            arenas=tuple(arena.file_number for arena in self._arenas),
            environment=worker_environment(threads),
        )
        key = secrets.token_bytes(32)
        starts = [
            _start_message(settings, specs, index, threads, transport, key, vocabulary)
            for index in range(len(specs))
        ]
        self._sharing = Sharing(self._arenas, specs, self._tell)
        self._on_event = on_event
        self._on_lost = on_lost
        listener = Listener(self._hear, self._lose)
        self._keepers = tuple(
            Keeper(index, start, launch, settings.workers, listener)
            for index, start in enumerate(starts)
        )
        self._lives: tuple[asyncio.Task[None], ...] = ()

    async def start(self) -> None:
        """Start all processes; `wait_ready` and `fleet` tell whether they are well."""
        self._lives = tuple(asyncio.create_task(keeper.keep()) for keeper in self._keepers)

    async def wait_ready(self) -> None:
        """Wait until every worker has been ready once; later deaths are the pool's own affair.

        Raises:
            WorkerStartError: a worker failed its first start, or cannot read another's embeddings.
        """
        for outcome in asyncio.as_completed([keeper.first_start for keeper in self._keepers]):
            failure = await outcome
            if failure:
                raise WorkerStartError(failure)
        failure = await self._sharing.wait_answered()
        if failure:
            raise WorkerStartError(failure)

    async def stop(self, grace_seconds: float = GRACE_SECONDS) -> None:
        """Let the workers leave, end those that have not left in time, and wait for them all."""
        for keeper in self._keepers:
            keeper.stop()
        if self._lives:
            await asyncio.wait(self._lives, timeout=grace_seconds)
        for keeper in self._keepers:
            keeper.kill()
        await asyncio.gather(*self._lives)
        for arena in self._arenas:
            arena.close()

    def arena(self, index: int) -> Arena:
        """The arena of the worker at `index`; it outlives the worker's process."""
        return self._arenas[index]

    @property
    def places(self) -> Sequence[Allocator]:
        """Where each worker's embeddings belong, by index; replaced as processes come and go."""
        return self._sharing.places

    def fleet(self) -> Fleet:
        """The workers as they are now."""
        return Fleet(tuple(keeper.view() for keeper in self._keepers))

    def send(self, index: int, message: Job | Abort) -> None:
        """Queue a job or an abort for the worker at `index`; never waits.

        A job for a worker that is not ready ends as gone. An abort of a job that has ended does
        nothing; no abort raises.

        Raises:
            OutboxFull: the worker does not read; the job was not queued.
            FrameTooLong: the job fits no frame.
        """
        self._keepers[index].send(message)

    def _tell(self, index: int, message: MapPool | DropPool) -> None:
        self._keepers[index].tell(message)

    def _hear(self, index: int, event: FromWorker) -> None:
        self._sharing.hear(index, event)
        self._on_event(index, event)

    def _lose(self, index: int) -> None:
        self._sharing.lose(index)
        self._on_lost(index)


def _share_of_cores(num_workers: int) -> int:
    return max(1, num_cores() // num_workers)


def _start_message(  # noqa: PLR0913 - what all workers have in common, and which one it is
    settings: Settings,
    specs: Sequence[WorkerSpec],
    index: int,
    num_threads: int,
    transport: Transport,
    digest_key: bytes,
    vocabulary: Vocabulary,
) -> Start:
    spec = specs[index]
    has_pool = transport == "cuda_ipc" and "vision" in spec.roles
    return Start(
        index=index,
        name=spec.name,
        device=spec.device,
        roles=spec.roles,
        model=str(settings.model.model.resolve()),  # workers run in another folder
        dtype=settings.model.dtype,
        num_threads=num_threads,
        log_level=settings.server.log_level,
        log_format=settings.server.log_format,
        max_context_tokens=settings.model.max_context_tokens,
        max_vision_batch_patches=settings.vision.max_vision_batch_patches,
        feature_pool_bytes=settings.workers.feature_pool_bytes if has_pool else 0,
        shares_feature_pool=has_pool and is_shared(index, specs),
        kv_cache_tokens=settings.engine.kv_cache_tokens,
        kv_block_tokens=settings.engine.kv_block_tokens,
        max_step_tokens=settings.engine.max_step_tokens,
        max_step_sequences=settings.engine.max_step_sequences,
        attention=settings.engine.attention,
        cuda_graphs=settings.engine.cuda_graphs,
        prefix_cache=settings.engine.prefix_cache,
        digest_key=digest_key,
        vocabulary=vocabulary if "language" in spec.roles else NO_VOCABULARY,
    )
