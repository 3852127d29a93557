"""Which jobs each worker holds, so that one that may have killed a worker runs by itself."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from gateway.jobs.fence import INNOCENT, Fence, Key
from workers.fail_kind import FailKind
from workers.keeper import Job
from workers.messages import Encoded, Failed, Finished, FromWorker, LastEvent, Tokens
from workers.pool import OutboxFull, Pool
from workers.wire import FrameTooLong


@dataclass(frozen=True, slots=True)
class _Held:
    """A job that waits in the gateway for a trial to end."""

    job: Job
    key: Key
    since: float  # monotonic seconds

    def ready(self) -> Job:
        """The job, with the time that it still has."""
        seconds_left = self.job.seconds_left - (time.monotonic() - self.since)
        return msgspec.structs.replace(self.job, seconds_left=seconds_left)


@dataclass(slots=True)
class _Room:
    """What one life of a worker holds and what waits for it. Owned by the ward."""

    present: dict[str, Key] = field(default_factory=dict)  # by job id; sent and not ended
    on_trial: str | None = None  # job id
    suspects: deque[_Held] = field(default_factory=deque)
    others: deque[_Held] = field(default_factory=deque)
    culprit: Key | None = None  # what the worker died of, once it is dead

    def next(self) -> _Held | None:
        """Whose turn it is; suspects go first, for they came first."""
        line = self.suspects or self.others
        return line.popleft() if self.on_trial is None and line else None

    @property
    def tried(self) -> Key:
        """The key of the job on trial, or of all jobs, if they have one; else `INNOCENT`."""
        keys = set(self.present.values())  # several choices of a request have one
        if self.on_trial is None and len(keys) == 1:
            return keys.pop()
        return self.present.get(self.on_trial or "", INNOCENT)


class Ward:
    """Sends jobs to workers. Owned by the dispatcher.

    A job under suspicion is on trial from its sending until its prompt has been read or its image
    encoded; to its end if it was present at more than one death. While a worker has one on trial,
    nothing else is sent to it. So if the worker dies now, it is known what it died of, and whoever
    came later is not harmed.
    """

    def __init__(self, pool: Pool, fence: Fence, tell: Callable[[int, FromWorker], None]) -> None:
        """`tell` is told of jobs that end here, as if their worker had."""
        self._pool = pool
        self._fence = fence
        self._tell = tell
        self._rooms: dict[int, _Room] = {}

    def send(self, worker: int, job: Job, key: Key) -> None:
        """Send a job, or hold it until a trial is over.

        Raises:
            OutboxFull: the worker does not read; the job was neither sent nor held.
            FrameTooLong: the job fits no frame.
        """
        room = self._room(worker)
        if room.on_trial is None:  # then nobody waits
            self._pass_on(worker, room, job, key)
        else:
            line = room.suspects if self._fence.num_deaths(key) else room.others
            line.append(_Held(job, key, time.monotonic()))

    def drop(self, worker: int, job_id: str) -> bool:
        """Forget a job that is held; whether there was such a one."""
        room = self._room(worker)
        for line in (room.suspects, room.others):
            for held in line:
                if held.job.job_id == job_id:
                    line.remove(held)
                    return True
        return False

    def hear(self, worker: int, event: FromWorker) -> FromWorker:
        """Take what matters here of what a worker says of a job.

        Returns:
            what it means: a job that was lost when the worker died of another one is merely gone,
            and how the worker died matters no more.
        """
        match event:
            case Tokens():
                self._look_at_trial(worker, event)
            case Failed(kind="lost" | "killed"):
                return self._mourn(worker, event)
            case _ if isinstance(event, LastEvent):
                self._leave(worker, event)
        return event

    def lose(self, worker: int) -> None:
        """The worker died, and all that it held has ended; what waited for it is told so."""
        room = self._rooms.pop(worker, _Room())
        for held in (*room.suspects, *room.others):
            self._tell(worker, _gone(held.job))

    def _room(self, worker: int) -> _Room:
        return self._rooms.setdefault(worker, _Room())

    def _pass_on(self, worker: int, room: _Room, job: Job, key: Key) -> None:
        self._pool.send(worker, job)
        if self._pool.fleet().workers[worker].ready:  # else the job is lost before it is begun
            room.present[job.job_id] = key
            if self._fence.num_deaths(key):
                room.on_trial = job.job_id

    def _look_at_trial(self, worker: int, event: Tokens) -> None:
        """With its first token a job has read its prompt, which is enough after one death."""
        room = self._room(worker)
        if event.job_id == room.on_trial and self._fence.num_deaths(room.tried) < 2:
            self._end_trial(worker, room)

    def _mourn(self, worker: int, event: Failed) -> Failed:
        """What the death of a worker means for one of its jobs, all of which end now."""
        room = self._room(worker)
        if room.culprit is None:
            keys, was_killed = set(room.present.values()), event.kind == "killed"
            room.culprit = self._fence.judge(keys, room.tried, was_killed=was_killed)
        key = room.present.pop(event.job_id, INNOCENT)
        kind: FailKind = "lost" if room.culprit in (INNOCENT, key) else "gone"
        return msgspec.structs.replace(event, kind=kind)

    def _leave(self, worker: int, event: LastEvent) -> None:
        room = self._room(worker)
        key = room.present.pop(event.job_id, INNOCENT)
        if isinstance(event, Encoded) or (isinstance(event, Finished) and event.reason != "abort"):
            self._fence.acquit(key)
        if event.job_id == room.on_trial:
            self._end_trial(worker, room)

    def _end_trial(self, worker: int, room: _Room) -> None:
        room.on_trial = None
        while (held := room.next()) is not None:
            try:
                self._pass_on(worker, room, held.ready(), held.key)
            except (OutboxFull, FrameTooLong):
                self._tell(worker, _gone(held.job))


def _gone(job: Job) -> Failed:
    return Failed(job_id=job.job_id, kind="gone", message="the worker did not come to this job")
