"""Jobs out to workers, their events back to whoever waits; every job ends exactly once."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.encoding.lease import Lease, Share
from gateway.encoding.place import Candidate
from gateway.errors import (
    BadRequest,
    DeadlinePassed,
    NotReady,
    OutOfMemory,
    Overloaded,
    ServeError,
    WorkerFailed,
    WorkerLost,
)
from gateway.jobs.fence import FENCE_SECONDS, INNOCENT, Fence, Key, prompt_key
from gateway.jobs.ticket import Ticket
from gateway.jobs.ward import Ward
from gateway.observe.metrics import Metrics
from gateway.observe.timeline import Pass, Timeline, current_timeline, passes_of_worker
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Missing,
    Scored,
    Started,
    Stats,
    Taken,
    Tokens,
)
from workers.pool import OutboxFull, Pool
from workers.ranges import Allocator

_OWNER_STAGES = ("queue", "decode", "preprocess", "digest", "encode")  # in its order
_LOST = "the worker that held this request is gone; try again"


_Told = Taken | Scored | Started | Tokens | Finished | Missing  # of an answer


class Undecoded(Exception):
    """The owner could not read the image's file; it takes pixels instead."""


@dataclass(slots=True)
class _Encoding:
    """One encode job under way. Owned by the dispatcher."""

    job: EncodeJob
    worker: int
    leases: Sequence[Lease[Allocator]]
    result: asyncio.Future[Encoded]
    timeline: Timeline = field(default_factory=current_timeline)

    def release(self) -> None:
        """Give the regions back."""
        for lease in self.leases:
            lease.release()


class Dispatcher:
    """Knows every job in flight. Owned by the gateway's event loop.

    The pool promises each job sent one last event, also when its worker dies.
    """

    def __init__(self, pool: Pool, metrics: Metrics, fence_seconds: float = FENCE_SECONDS) -> None:
        """`fence_seconds`: for how long what killed workers is refused."""
        self.fence = Fence(fence_seconds)
        self._ward = Ward(pool, self.fence, self.on_event)
        self._pool = pool
        self._metrics = metrics
        self._encodings: dict[str, _Encoding] = {}
        self._tickets: dict[str, Ticket] = {}

    @property
    def num_jobs(self) -> int:
        """Jobs that have not had their last event."""
        return len(self._encodings) + len(self._tickets)

    def engines(self) -> tuple[Candidate, ...]:
        """The ready engines with the number of prompts that each holds.

        Raises:
            NotReady: there is none.
        """
        views = self._pool.fleet().holding("language")
        if not views:
            raise NotReady("no worker with the role language is ready")
        loads = Counter(ticket.worker for ticket in self._tickets.values())
        return tuple(Candidate(view.index, view.name, loads[view.index]) for view in views)

    async def encode(
        self,
        worker: int,
        job: EncodeJob,
        leases: Sequence[Lease[Allocator]],
        key: Key = INNOCENT,
    ) -> Encoded:
        """Have `worker` encode one image; the leases on its regions are held meanwhile.

        `key` is the image's, see `gateway.jobs.fence`. Cancelling this tells the worker; the
        regions stay held until the worker has let go.

        Raises:
            ServeError: the job failed, ran out of time, or its worker died.
            Undecoded: the payload was a file that the owner cannot read.
        """
        result: asyncio.Future[Encoded] = asyncio.get_running_loop().create_future()
        self._send(worker, job, key)
        encoding = _Encoding(job, worker, [lease.hold() for lease in leases], result)
        self._encodings[job.job_id] = encoding
        try:
            return await encoding.result
        except asyncio.CancelledError:
            self._abort(worker, job.job_id)
            raise

    def generate(self, worker: int, job: GenerateJob, share: Share, wake: asyncio.Event) -> Ticket:
        """Have `worker` answer a prompt; the ticket holds the embeddings while they are needed.

        Args:
            worker: index of the engine.
            job: what to answer.
            share: of the embeddings; held once more if this returns.
            wake: set whenever something arrives.

        Raises:
            Overloaded: the worker does not read.
            RequestFenced: the prompt is refused for now.
        """
        key = prompt_key(job)
        self.fence.check_prompt(key)
        self._send(worker, job, key)
        regions = tuple(each.embeddings.region for each in job.spans if each.embeddings is not None)
        ticket = Ticket(job.job_id, worker, share.hold(), regions, wake, key)
        self._tickets[job.job_id] = ticket
        return ticket

    def close(self, ticket: Ticket) -> None:
        """Stop a job that nobody reads any more; never awaits, and twice does nothing."""
        if self._tickets.get(ticket.job_id) is ticket:
            self._abort(ticket.worker, ticket.job_id)

    def on_event(self, worker: int, event: FromWorker) -> None:
        """Take one message of a worker; late messages of ended jobs are dropped."""
        event = self._ward.hear(worker, event)
        match event:
            case Encoded():
                self._encoded(event)
            case Failed():
                self._failed(event)
            case Stats():
                self._show_stats(worker, event)
            case Taken() | Scored() | Started() | Tokens() | Finished() | Missing():
                ticket = self._tickets.get(event.job_id)
                if ticket is not None:
                    self._tell(ticket, event)
            case _:
                pass

    def _tell(self, ticket: Ticket, event: _Told) -> None:
        match event:
            case Taken():
                self._taken(ticket, event)
            case Scored():
                ticket.scores.extend(event.likelihoods)
                ticket.wake.set()
            case Started():
                ticket.num_cached_tokens = event.num_cached_tokens
                ticket.is_started = True
                self._observe(ticket, "prefill")
            case Tokens():
                ticket.token_ids.extend(event.token_ids)
                ticket.likelihoods.extend(event.likelihoods)
                ticket.wake.set()
            case Finished():
                self._end(ticket, event)
            case Missing():
                self._refused(ticket, event)

    def on_lost(self, worker: int) -> None:
        """A worker died, and the last events of the jobs that it held were taken."""
        self._ward.lose(worker)

    def _send(self, worker: int, message: EncodeJob | GenerateJob, key: Key) -> None:
        try:
            self._ward.send(worker, message, key)
        except OutboxFull as error:
            raise Overloaded("the worker's inbox is full") from error

    def _abort(self, worker: int, job_id: str) -> None:
        if self._ward.drop(worker, job_id):
            self._failed(Failed(job_id=job_id, kind="internal", message="aborted"))
        else:
            self._pool.send(worker, Abort(job_id=job_id))

    def _encoded(self, event: Encoded) -> None:
        encoding = self._encodings.pop(event.job_id, None)
        if encoding is None:
            return
        encoding.release()
        self._metrics.images_encoded.inc()
        self._metrics.image_patches.inc(encoding.job.plan.num_patches)
        seconds = {stage: getattr(event, f"{stage}_seconds") for stage in _OWNER_STAGES}
        if not event.decode_seconds:  # then the gateway decoded it, and observed it there
            del seconds["decode"]
        for one in passes_of_worker(self._name(encoding.worker), seconds):
            self._metrics.observe(one, encoding.timeline)
        if not encoding.result.done():
            encoding.result.set_result(event)

    def _taken(self, ticket: Ticket, event: Taken) -> None:
        """The engine has its embeddings; those that it reads in place stay to the end."""
        if event.is_copied:
            ticket.release()
        ticket.missing = ()
        ticket.wake.set()
        if ticket.regions:
            one = Pass("transfer", event.transfer_seconds, self._name(ticket.worker))
            self._metrics.observe(one, ticket.timeline)
        for region in ticket.regions:
            way = "cuda_ipc" if region.pool else "cpu"
            if region.arena == ticket.worker and not event.is_copied:
                way = "same_process"
            self._metrics.embedding_bytes.labels(way).inc(region.num_bytes)

    def _refused(self, ticket: Ticket, event: Missing) -> None:
        """The job is over, but its request may offer it again."""
        del self._tickets[ticket.job_id]
        ticket.release()
        ticket.missing = event.starts
        ticket.wake.set()

    def _failed(self, event: Failed) -> None:
        encoding = self._encodings.pop(event.job_id, None)
        if encoding is not None:
            encoding.release()
            if not encoding.result.done():
                undecoded = event.kind == "undecoded"
                encoding.result.set_exception(Undecoded() if undecoded else to_error(event))
        elif event.job_id in self._tickets:
            self._end(self._tickets[event.job_id], event)

    def _end(self, ticket: Ticket, end: Finished | Failed) -> None:
        del self._tickets[ticket.job_id]
        ticket.release()
        ticket.end = end
        if ticket.is_started:
            self._observe(ticket, "generate")
        ticket.wake.set()

    def _observe(self, ticket: Ticket, stage: str) -> None:
        """An engine's stage has ended, and the next begins."""
        begun, ticket.stage_begun = ticket.stage_begun, time.monotonic()
        seconds, worker = ticket.stage_begun - begun, self._name(ticket.worker)
        self._metrics.observe(Pass(stage, seconds, worker, ticket.stage_begun), ticket.timeline)

    def _name(self, worker: int) -> str:
        return self._pool.fleet().workers[worker].name

    def _show_stats(self, worker: int, event: Stats) -> None:
        name = self._name(worker)
        self._metrics.worker_running.labels(name).set(event.num_running)
        waiting = event.num_waiting + event.num_images_waiting
        self._metrics.worker_waiting.labels(name).set(waiting)
        self._metrics.worker_waiting_images.labels(name).set(event.num_images_waiting)
        self._metrics.kv_used_tokens.labels(name).set(event.kv_used_tokens)
        self._metrics.kv_cached_tokens.labels(name).set(event.kv_cached_tokens)


def to_error(failed: Failed) -> ServeError:
    """The error that a failed job means for its request."""
    match failed.kind:
        case "bad_input":
            return BadRequest(failed.message)
        case "deadline":
            return DeadlinePassed("the request's time limit ran out")
        case "lost" | "killed" | "gone":
            return WorkerLost(_LOST, is_suspect=failed.kind != "gone")
        case "out_of_memory":
            return OutOfMemory("a worker has too little memory left for this request; try again")
        case "internal" | "undecoded" | "not_finite":
            return WorkerFailed("a worker failed on this request")
