"""Jobs out to workers, their events back to whoever waits; every job ends exactly once."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field

from gateway.errors import (
    BadRequest,
    DeadlinePassed,
    NotReady,
    Overloaded,
    ServeError,
    WorkerFailed,
    WorkerLost,
)
from gateway.metrics import Metrics
from gateway.place import Candidate, cost
from workers.arena import Arena
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Region,
    Stats,
    Taken,
    Tokens,
)
from workers.pool import OutboxFull, Pool

_LOST = "the worker that held this request is gone; try again"


@dataclass(slots=True)
class Lease:
    """A reserved arena region, given back when its last holder lets go. Owned by the event loop."""

    arena: Arena
    region: Region
    num_holders: int = 1

    def hold(self) -> "Lease":
        """Count one more holder."""
        self.num_holders += 1
        return self

    def release(self) -> None:
        """Let go once per hold; the last one frees the region."""
        self.num_holders -= 1
        if self.num_holders == 0:
            self.arena.free(self.region)


@dataclass(slots=True)
class Batch:
    """What arrived of an answer since the last look."""

    token_ids: tuple[int, ...]
    end: Finished | Failed | None


@dataclass(slots=True)
class Ticket:
    """One generate job under way; tokens pile up here, so a slow reader slows nobody.

    Owned by the dispatcher, which alone fills it; the request's task alone reads it.
    """

    job_id: str
    worker: int
    leases: list[Lease]
    token_ids: list[int] = field(default_factory=list)
    end: Finished | Failed | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    async def next(self) -> Batch:
        """Wait for tokens or the end, and take all there is."""
        await self.wake.wait()
        self.wake.clear()
        batch = Batch(tuple(self.token_ids), self.end)
        self.token_ids.clear()
        return batch

    def release(self) -> None:
        """Give the embeddings' regions back; twice does nothing."""
        for lease in self.leases:
            lease.release()
        self.leases.clear()


@dataclass(slots=True)
class _Encoding:
    """One encode job under way. Owned by the dispatcher."""

    job: EncodeJob
    worker: int
    lease: Lease
    result: asyncio.Future[Encoded]


class Dispatcher:
    """Knows every job in flight. Owned by the gateway's event loop.

    The pool promises each job sent one last event, also when its worker dies.
    """

    def __init__(self, pool: Pool, metrics: Metrics) -> None:
        self._pool = pool
        self._metrics = metrics
        self._encodings: dict[str, _Encoding] = {}
        self._tickets: dict[str, Ticket] = {}

    @property
    def num_jobs(self) -> int:
        """Jobs that have not had their last event."""
        return len(self._encodings) + len(self._tickets)

    def candidates(self, role: str) -> tuple[Candidate, ...]:
        """The ready workers of a role with the work they hold.

        Raises:
            NotReady: there is none.
        """
        views = self._pool.fleet().holding(role)
        if not views:
            raise NotReady(f"no worker with the role {role} is ready")
        loads = {view.index: 0.0 for view in views}
        for worker, load in self._loads(role):
            if worker in loads:
                loads[worker] += load
        return tuple(Candidate(view.index, view.name, loads[view.index]) for view in views)

    def _loads(self, role: str) -> Iterator[tuple[int, float]]:
        if role == "vision":
            for encoding in self._encodings.values():
                yield encoding.worker, cost(encoding.job.plan)
        else:
            for ticket in self._tickets.values():
                yield ticket.worker, 1.0

    async def encode(self, worker: int, job: EncodeJob, lease: Lease) -> Encoded:
        """Have `worker` encode one image; the lease on its regions is held meanwhile.

        Cancelling it tells the worker; the regions stay held until the worker has let go.

        Raises:
            ServeError: the job failed, ran out of time, or its worker died.
        """
        result: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._send(worker, job)
        encoding = _Encoding(job, worker, lease.hold(), result)
        self._encodings[job.job_id] = encoding
        try:
            return await encoding.result
        except asyncio.CancelledError:
            self._abort(worker, job.job_id)
            raise

    def generate(self, worker: int, job: GenerateJob, leases: list[Lease]) -> Ticket:
        """Have `worker` answer a prompt whose embeddings lie in the leased regions."""
        self._send(worker, job)
        held = [lease.hold() for lease in leases]
        ticket = Ticket(job.job_id, worker, held)
        self._tickets[job.job_id] = ticket
        return ticket

    def close(self, ticket: Ticket) -> None:
        """Stop a job that nobody reads any more; never awaits, and twice does nothing."""
        if ticket.end is None and ticket.job_id in self._tickets:
            self._abort(ticket.worker, ticket.job_id)

    def on_event(self, worker: int, event: FromWorker) -> None:
        """Take one message of a worker; late messages of ended jobs are dropped."""
        match event:
            case Encoded():
                self._encoded(event)
            case Failed():
                self._failed(event)
            case Tokens() if event.job_id in self._tickets:
                ticket = self._tickets[event.job_id]
                ticket.token_ids.extend(event.token_ids)
                ticket.wake.set()
            case Taken() if event.job_id in self._tickets:
                self._tickets[event.job_id].release()
            case Finished() if event.job_id in self._tickets:
                self._end(self._tickets[event.job_id], event)
            case Stats():
                self._show_stats(worker, event)
            case _:
                pass

    def _send(self, worker: int, message: EncodeJob | GenerateJob) -> None:
        try:
            self._pool.send(worker, message)
        except OutboxFull as error:
            raise Overloaded("the worker's inbox is full") from error

    def _abort(self, worker: int, job_id: str) -> None:
        self._pool.send(worker, Abort(job_id=job_id))

    def _encoded(self, event: Encoded) -> None:
        encoding = self._encodings.pop(event.job_id, None)
        if encoding is None:
            return
        encoding.lease.release()
        self._metrics.images_encoded.inc()
        self._metrics.image_patches.inc(encoding.job.plan.num_patches)
        for stage in ("queue", "preprocess", "encode"):
            seconds = getattr(event, f"{stage}_seconds")
            self._metrics.stage_seconds.labels(stage).observe(seconds)
        if not encoding.result.done():
            encoding.result.set_result(event)

    def _failed(self, event: Failed) -> None:
        encoding = self._encodings.pop(event.job_id, None)
        if encoding is not None:
            encoding.lease.release()
            if not encoding.result.done():
                encoding.result.set_exception(to_error(event))
        elif event.job_id in self._tickets:
            self._end(self._tickets[event.job_id], event)

    def _end(self, ticket: Ticket, end: Finished | Failed) -> None:
        del self._tickets[ticket.job_id]
        ticket.release()
        ticket.end = end
        ticket.wake.set()

    def _show_stats(self, worker: int, event: Stats) -> None:
        name = self._pool.fleet().workers[worker].name
        self._metrics.worker_running.labels(name).set(event.num_running)
        waiting = event.num_waiting + event.num_images_waiting
        self._metrics.worker_waiting.labels(name).set(waiting)
        self._metrics.kv_used_tokens.labels(name).set(event.kv_used_tokens)


def to_error(failed: Failed) -> ServeError:
    """The error that a failed job means for its request."""
    match failed.kind:
        case "bad_input":
            return BadRequest(failed.message)
        case "deadline":
            return DeadlinePassed("the request's time limit ran out")
        case "lost":
            return WorkerLost(_LOST)
        case "internal" | "undecoded":
            return WorkerFailed("a worker failed on this request")
