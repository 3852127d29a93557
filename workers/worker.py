"""The loop of a worker: take in messages, encode a batch, run a language step, publish."""

import logging
import sys
import time
from collections.abc import Iterable
from typing import Generic

import msgspec

from workers.heart import Turn
from workers.messages import (
    Abort,
    DropPool,
    EncodeJob,
    Failed,
    FromWorker,
    GenerateJob,
    JobEvent,
    LastEvent,
    MapPool,
    Start,
    Stats,
    Stop,
    ToWorker,
)
from workers.stage import Answering, Job, Stage
from workers.wire import Channel, NotUnderstood, job_id_of, unpack

MAX_FAULTS_IN_A_ROW = 3
STATS_SECONDS = 1.0

logger = logging.getLogger(__name__)


class _Desk(Generic[Job]):
    """A stage and the jobs that it owes an end. Owned by the loop."""

    def __init__(self, stage: Stage[Job]) -> None:
        self.stage: Stage[Job] = stage
        self.open_jobs: dict[str, None] = {}  # a set that keeps order
        self.num_faults = 0  # steps in a row that raised


class Worker:
    """Both roles in one loop; a role that the worker lacks has no stage."""

    def __init__(
        self,
        channel: Channel,
        vision: Stage[EncodeJob] | None,
        language: Answering | None,
    ) -> None:
        self._channel = channel
        self._engine = language
        self._vision = None if vision is None else _Desk(vision)
        self._language = None if language is None else _Desk(language)
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self.turn = Turn()
        self._told_to_stop = False
        self._load = Stats(
            num_running=0,
            num_waiting=0,
            kv_used_tokens=0,
            kv_cached_tokens=0,
            num_images_waiting=0,
        )
        self._told_load = self._load
        self._told_load_at = 0.0
        self._told_busy = False  # whether it was so when its load was told

    def run(self) -> None:
        """Work until the gateway says Stop or is gone."""
        while not self._told_to_stop and not self._channel.closed:
            self.turn.end()
            bodies = self._channel.receive(wait=not self._busy)
            self.turn.begin()
            self._take_in(bodies)
            self._tell_load()  # a step may take long
            self._step(self._vision)
            self._step(self._language)
            self._tell_load()

    @property
    def _busy(self) -> bool:
        return any(desk is not None and desk.stage.busy for desk in (self._vision, self._language))

    def _take_in(self, bodies: list[bytes]) -> None:
        for body in bodies:
            try:
                message = unpack(body, self._decoder)
            except NotUnderstood as error:
                logger.error("a message was not understood: %s", error)
                self._refuse(job_id_of(body), "the worker did not understand the job")
            else:
                self._take(message)

    def _take(self, message: ToWorker) -> None:
        match message:
            case EncodeJob():
                self._put(self._vision, message)
            case GenerateJob():
                self._put(self._language, message)
            case Abort():
                self._abort(message.job_id)
            case MapPool() | DropPool():
                self._share(message)
            case Stop():
                self._told_to_stop = True
            case Start():
                logger.error("a second Start was ignored")

    def _abort(self, job_id: str) -> None:
        for desk in (self._vision, self._language):
            if desk is not None and job_id in desk.open_jobs:
                desk.stage.abort(job_id)

    def _share(self, message: MapPool | DropPool) -> None:
        if self._engine is None:
            logger.error("memory to read from was offered to a worker that reads none")
        elif isinstance(message, MapPool):
            self._channel.send(self._engine.map_pool(message))
        else:
            self._engine.drop_pool(message.number)

    def _put(self, desk: _Desk[Job] | None, job: Job) -> None:
        if desk is None:
            self._refuse(job.job_id, "the worker does not have the role for this job")
            return
        desk.open_jobs[job.job_id] = None
        try:
            desk.stage.put(job)
        except Exception as error:
            _raise_if_device_is_lost(error)
            logger.exception("a job could not be taken in")
            self._end(desk, [job.job_id])

    def _step(self, desk: _Desk[Job] | None) -> None:
        if desk is None or not desk.stage.busy:
            return
        try:
            events = desk.stage.step()
        except Exception as error:
            desk.num_faults += 1
            _raise_if_device_is_lost(error)
            if desk.num_faults >= MAX_FAULTS_IN_A_ROW:
                raise  # a new process may do better
            logger.exception("a step failed; its %d jobs end", len(desk.open_jobs))
            self._end(desk, list(desk.open_jobs))
        else:
            desk.num_faults = 0
            self._publish(desk, events)

    def _publish(self, desk: _Desk[Job], events: Iterable[FromWorker]) -> None:
        told: list[FromWorker] = []
        for event in events:
            if isinstance(event, Stats):
                self._load = event
                continue
            if isinstance(event, JobEvent) and event.job_id not in desk.open_jobs:
                continue  # ended for it in `_end`
            if isinstance(event, LastEvent):
                del desk.open_jobs[event.job_id]
            told.append(event)
        self._channel.send(*told)

    def _end(self, desk: _Desk[Job], job_ids: Iterable[str]) -> None:
        for job_id in job_ids:
            desk.stage.abort(job_id)
            del desk.open_jobs[job_id]
            self._refuse(job_id, "the worker failed while doing this job")

    def _refuse(self, job_id: str | None, message: str) -> None:
        if job_id is not None:
            self._channel.send(Failed(job_id=job_id, kind="internal", message=message))

    def _tell_load(self) -> None:
        num_images = 0 if self._vision is None else len(self._vision.open_jobs)
        load = msgspec.structs.replace(self._load, num_images_waiting=num_images)
        now, busy = time.monotonic(), self._busy
        is_due = not (busy and self._told_busy) or now - self._told_load_at >= STATS_SECONDS
        if load != self._told_load and is_due:
            self._channel.send(load)
            self._told_load, self._told_load_at, self._told_busy = load, now, busy


def _raise_if_device_is_lost(error: Exception) -> None:
    """After a fault of the accelerator nothing works in this process; torch may be absent here."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(error, torch.AcceleratorError):
        raise error
