"""Keeps one worker running: starts it, hands on what it says, starts it again when it is lost."""

import asyncio
import contextlib
import logging
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from config.settings import WorkerSettings
from workers.link import Launch, Link, describe_exit
from workers.messages import (
    Abort,
    Alive,
    DropPool,
    EncodeJob,
    Failed,
    FromWorker,
    GenerateJob,
    JobEvent,
    LastEvent,
    MapPool,
    Ready,
    Start,
    StartFailed,
    Stop,
)
from workers.vigil import Vigil

MAX_RESTART_SECONDS = 30.0
HEALTHY_SECONDS = 60.0

logger = logging.getLogger(__name__)

Job = EncodeJob | GenerateJob
NO_FACTS = Ready(
    embedding_bytes_per_token=0, max_context_tokens=0, kv_cache_tokens=0, load_seconds=0.0
)


class OutboxFull(Exception):
    """The worker does not read; what already waits for it is as much as may wait."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Who hears of workers; both are called in the event loop and must not raise."""

    on_event: Callable[[int, FromWorker], None]
    on_lost: Callable[[int], None]


@dataclass(frozen=True, slots=True)
class WorkerView:
    """What can be known of a worker at one moment."""

    index: int  # also the index of its arena
    name: str
    device: str
    roles: tuple[str, ...]
    ready: bool
    in_flight: int  # jobs sent that have not ended
    # Facts of its latest life that became ready, as in `Ready`; 0 before.
    embedding_bytes_per_token: int
    max_context_tokens: int
    kv_cache_tokens: int
    load_seconds: float


class Keeper:
    """One worker slot over all lives of its process. Owned by the pool."""

    def __init__(
        self, index: int, start: Start, launch: Launch, settings: WorkerSettings, listener: Listener
    ) -> None:
        self.first_start: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._facts = NO_FACTS
        self._index = index
        self._start = start
        self._launch = launch
        self._settings = settings
        self._listener = listener
        self._link: Link | None = None
        self._vigil = Vigil(settings)
        self._ready_at: float | None = None
        self._failure = ""
        self._jobs: dict[str, None] = {}  # sent and not ended; a set that keeps order
        self._stopping = asyncio.Event()

    @property
    def is_ready(self) -> bool:
        """Whether the worker takes jobs now."""
        if self._link is None or self._ready_at is None or self._stopping.is_set():
            return False
        return not self._link.is_closed

    def view(self) -> WorkerView:
        """The worker as it is now."""
        return WorkerView(
            index=self._index,
            name=self._start.name,
            device=self._start.device,
            roles=self._start.roles,
            ready=self.is_ready,
            in_flight=len(self._jobs),
            embedding_bytes_per_token=self._facts.embedding_bytes_per_token,
            max_context_tokens=self._facts.max_context_tokens,
            kv_cache_tokens=self._facts.kv_cache_tokens,
            load_seconds=self._facts.load_seconds,
        )

    def send(self, message: Job | Abort) -> None:
        """Queue a message for the worker; see `Pool.send`."""
        if isinstance(message, Abort):  # at most one for each job sent, so no bound is needed
            if self._link is not None and message.job_id in self._jobs:
                self._link.send(message)
        elif self._link is None or not self.is_ready:
            gone = Failed(
                job_id=message.job_id, kind="gone", message=f"{self._start.name} is not ready"
            )
            asyncio.get_running_loop().call_soon(self._hand_on, gone)
        elif self._link.outbox_is_full:
            raise OutboxFull(f"{self._start.name} does not read its messages")
        else:
            self._link.send(message)
            self._jobs[message.job_id] = None

    def tell(self, message: MapPool | DropPool) -> None:
        """Queue a message that ends no job, unless the worker is not ready."""
        if self._link is not None and self.is_ready:
            self._link.send(message)

    async def keep(self) -> None:
        """Run the worker, life after life, until it is stopped or cannot start at first.

        `first_start` gets an empty text when the worker is ready, or else what went wrong.
        """
        wait_seconds = 0.0
        while not self._stopping.is_set():
            ready_seconds = await self._live()
            if not self.first_start.done():
                break
            first = self._settings.restart_seconds
            wait_seconds = next_wait(wait_seconds, first, ready_seconds)
            await self._pause(wait_seconds)
        if not self.first_start.done():
            self.first_start.set_result(f"{self._start.name} {self._failure}")

    def stop(self) -> None:
        """Tell the worker to leave; one that still loads has nothing to lose and is killed."""
        takes_messages = self.is_ready
        self._stopping.set()
        if self._link is not None and takes_messages:
            self._link.let_leave()
            self._link.send(Stop())
        else:
            self._failure = "was stopped before it was ready"
            self.kill()

    def kill(self) -> None:
        """End the worker's process at once, if there is one."""
        if self._link is not None:
            self._link.kill()

    async def _live(self) -> float:
        """One life of the process, from start to end; how long it was ready, in seconds."""
        self._failure = ""
        try:
            self._link = await Link.open(self._launch, self._receive)
        except OSError as error:
            self._lose(f"cannot be started: {error}")
            return 0.0
        if self._stopping.is_set():
            self.stop()
        else:
            self._link.send(self._start)
        limit = asyncio.get_running_loop().call_later(self._settings.start_seconds, self._expire)
        self._vigil = Vigil(self._settings)
        watch = asyncio.create_task(self._end_when_stuck())
        status = await self._link.wait_end()
        limit.cancel()
        watch.cancel()
        ready_seconds = 0.0 if self._ready_at is None else time.monotonic() - self._ready_at
        place = "while loading" if self._ready_at is None else ""
        ours = self._failure or self._link.fault  # why it was ended, if we did that
        reason = ours or f"{describe_exit(status)} {place}".strip()
        self._link = self._ready_at = None
        self._lose(reason, "killed" if status == -signal.SIGKILL and not ours else "lost")
        return ready_seconds

    async def _end_when_stuck(self) -> None:
        self._failure = await self._vigil.watch()
        self.kill()

    def _expire(self) -> None:
        if self._ready_at is None:
            self._failure = f"was not ready within {self._settings.start_seconds:g} seconds"
            self.kill()

    def _lose(self, reason: str, kind: Literal["lost", "killed"] = "lost") -> None:
        self._failure = reason
        jobs, self._jobs = self._jobs, {}
        level = logging.INFO if self._stopping.is_set() else logging.ERROR
        held = f"; it held {len(jobs)} jobs" if jobs else ""
        logger.log(level, "%s %s%s", self._start.name, reason, held)
        for job_id in jobs:
            told = f"{self._start.name} {reason}"
            self._hand_on(Failed(job_id=job_id, kind=kind, message=told))
        if not self._stopping.is_set():
            self._tell(self._listener.on_lost)

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _receive(self, message: FromWorker) -> None:
        match message:
            case Alive():
                self._vigil.hear(message)
                return
            case Ready():
                self._facts, self._ready_at = message, time.monotonic()
                self._vigil.hear(Alive(turn_seconds=0.0))
                if not self.first_start.done():
                    self.first_start.set_result("")
            case StartFailed():
                self._failure = f"cannot start: {message.message}"
            case _ if isinstance(message, JobEvent) and message.job_id not in self._jobs:
                return  # nobody waits for it
        if isinstance(message, LastEvent):
            del self._jobs[message.job_id]
        self._hand_on(message)

    def _hand_on(self, message: FromWorker) -> None:
        self._tell(self._listener.on_event, message)

    def _tell(self, hear: Callable[..., None], *message: FromWorker) -> None:
        try:
            hear(self._index, *message)
        except Exception:  # one bad message must not cost us the worker
            logger.exception("%s: nobody could take %s", self._start.name, message)


def next_wait(last_seconds: float, first_seconds: float, ready_seconds: float) -> float:
    """Wait before a restart, in seconds, from the last wait (0 if none) and the life since."""
    if last_seconds == 0 or ready_seconds >= HEALTHY_SECONDS:
        return first_seconds
    return min(2 * last_seconds, MAX_RESTART_SECONDS)
