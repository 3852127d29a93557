"""What the loop of a worker needs of a role's work, and of whoever makes it."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from workers.arena import Arenas
from workers.messages import (
    EncodeJob,
    FromWorker,
    GenerateJob,
    MapPool,
    PoolMapped,
    Ready,
    Start,
)

Job = TypeVar("Job", EncodeJob, GenerateJob, contravariant=True)


class Stage(Protocol[Job]):
    """What does one role's work, in bounded steps.

    Each job put ends in exactly one `LastEvent` that a later step returns; jobs that cannot be done
    are Failed, not raised.
    """

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do or to say."""
        ...

    def put(self, job: Job) -> None:
        """Take in a job."""
        ...

    def abort(self, job_id: str) -> None:
        """End a job early; does nothing for one that is unknown or has ended."""
        ...

    def step(self) -> list[FromWorker]:
        """Do one bounded piece of work; what there is to tell."""
        ...


class Answering(Stage[GenerateJob], Protocol):
    """The stage of the role language, which reads what other workers have encoded."""

    def map_pool(self, message: MapPool) -> PoolMapped:
        """Map the memory of another worker; a failure is told and not raised."""
        ...

    def drop_pool(self, number: int) -> None:
        """Let mapped memory go; does nothing for a pool that is unknown."""
        ...


Progress = Callable[[int, int], None]
Build = Callable[[Start, Arenas, Progress], tuple[Stage[EncodeJob] | None, Answering | None, Ready]]
