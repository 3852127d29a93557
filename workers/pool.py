"""The fleet of worker processes: specs in, jobs out to them, their events and losses back."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from config.settings import Settings
from config.workers import ROLES, WorkerSpec, worker_environment
from workers.arena import Arena
from workers.keeper import Job, Keeper, Listener
from workers.link import Launch
from workers.messages import Abort, FromWorker, Ready, Start

COMMAND = (sys.executable, "-m", "workers.entry")


class StartError(Exception):
    """A worker could not start at all; the message is for the operator."""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What can be known of a worker at one moment."""

    index: int  # also the index of its arena
    name: str
    device: str
    roles: tuple[str, ...]
    ready: bool
    in_flight: int  # jobs sent that have not ended
    facts: Ready  # of its latest life that became ready; all 0 before


@dataclass(frozen=True, slots=True)
class Fleet:
    """All workers at one moment, by index."""

    workers: tuple[WorkerView, ...]

    @property
    def vision(self) -> tuple[WorkerView, ...]:
        """Workers that take images now."""
        return self._holding("vision")

    @property
    def language(self) -> tuple[WorkerView, ...]:
        """Workers that take prompts now."""
        return self._holding("language")

    @property
    def is_ready(self) -> bool:
        """Whether every role is held by a worker that takes jobs."""
        return all(self._holding(role) for role in ROLES)

    def _holding(self, role: str) -> tuple[WorkerView, ...]:
        return tuple(worker for worker in self.workers if worker.ready and role in worker.roles)


class Pool:
    """Owns the worker processes and the arenas; lives in the gateway's event loop."""

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[WorkerSpec],
        command: tuple[str, ...] = COMMAND,
    ) -> None:
        self.arenas: tuple[Arena, ...] = ()  # from `start` to `stop`, by worker index
        self._settings = settings
        self._specs = tuple(specs)
        self._command = command
        self._keepers: tuple[Keeper, ...] = ()
        self._lives: tuple[asyncio.Task[None], ...] = ()

    async def start(
        self, on_event: Callable[[int, FromWorker], None], on_lost: Callable[[int], None]
    ) -> None:
        """Start all processes; whether they are well is told by `wait_ready` and `fleet`.

        `on_event` gets each message with the worker's index: progress, readiness, and of every job
        sent its events, the last of which is one Encoded, Finished or Failed, of kind `lost` if
        the worker dies. `on_lost` is called after that. Both run in the event loop.
        """
        num_bytes = self._settings.workers.arena_bytes
        self.arenas = tuple(Arena(index, num_bytes) for index in range(len(self._specs)))
        threads = self._settings.workers.threads_per_worker or _share_of_cores(len(self._specs))
        launch = Launch(
            command=self._command,
            arenas=tuple(arena.file_number for arena in self.arenas),
            environment=worker_environment(threads),
        )
        listener = Listener(on_event, on_lost)
        self._keepers = tuple(
            Keeper(
                index,
                _start_message(self._settings, spec, threads),
                launch,
                self._settings.workers,
                listener,
            )
            for index, spec in enumerate(self._specs)
        )
        self._lives = tuple(asyncio.create_task(keeper.keep()) for keeper in self._keepers)

    async def wait_ready(self) -> None:
        """Wait until every worker has been ready once; later deaths are the pool's own affair.

        Raises:
            StartError: a worker failed its first start.
        """
        for outcome in asyncio.as_completed([keeper.first_start for keeper in self._keepers]):
            failure = await outcome
            if failure:
                raise StartError(failure)

    async def stop(self, grace_seconds: float) -> None:
        """Let the workers leave, end those that have not left in time, and wait for them all."""
        for keeper in self._keepers:
            keeper.stop()
        if self._lives:
            await asyncio.wait(self._lives, timeout=grace_seconds)
        for keeper in self._keepers:
            keeper.kill()
        await asyncio.gather(*self._lives)
        for arena in self.arenas:
            arena.close()
        self.arenas, self._keepers, self._lives = (), (), ()

    def fleet(self) -> Fleet:
        """The workers as they are now."""
        return Fleet(
            tuple(
                WorkerView(
                    index=index,
                    name=spec.name,
                    device=spec.device,
                    roles=spec.roles,
                    ready=keeper.is_ready,
                    in_flight=keeper.num_jobs,
                    facts=keeper.facts,
                )
                for index, (spec, keeper) in enumerate(zip(self._specs, self._keepers, strict=True))
            )
        )

    def send(self, index: int, message: Job | Abort) -> None:
        """Queue a job or an abort for the worker at `index`; never waits. An abort never fails.

        Raises:
            WorkerGone: the worker is not ready.
            OutboxFull: the worker does not read; the job was not queued.
            FrameTooLong: the job fits no frame.
        """
        self._keepers[index].send(message)


def _share_of_cores(num_workers: int) -> int:
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, cores // num_workers)


def _start_message(settings: Settings, spec: WorkerSpec, num_threads: int) -> Start:
    return Start(
        name=spec.name,
        device=spec.device,
        roles=spec.roles,
        model=str(settings.model.model.resolve()),  # workers run in another folder
        dtype=settings.model.dtype,
        num_threads=num_threads,
        log_level=settings.server.log_level,
        max_context_tokens=settings.model.max_context_tokens,
        max_vision_batch_patches=settings.vision.max_vision_batch_patches,
        kv_cache_tokens=settings.engine.kv_cache_tokens,
        kv_block_tokens=settings.engine.kv_block_tokens,
        max_step_tokens=settings.engine.max_step_tokens,
        max_step_sequences=settings.engine.max_step_sequences,
    )
