"""A request that has ended, as its trace tells it."""

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import Scope

from gateway.answers.sse import Usage
from gateway.observe.timeline import Pass


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of one request."""

    scope: Scope
    begun: float  # monotonic seconds
    job_id: str
    status: int  # of the answer, as metrics and logs have it
    code: str  # of the error; empty: there was none
    passes: Sequence[Pass]
    model: str  # that is served
    usage: Usage | None  # None: it came to no answer
