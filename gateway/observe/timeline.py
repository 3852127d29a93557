"""How long one request has been at each stage, for its line in the log and its trace.

A request's tasks inherit its timeline through the context, so no stage has to hand it on. What is
heard of a worker arrives outside of that context; whoever waits for it keeps the timeline.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

_CURRENT: ContextVar["Timeline"] = ContextVar("timeline")


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass of a request through a stage."""

    stage: str
    seconds: float
    worker: str = ""  # where the work was done; empty: in the gateway
    ended: float = field(default_factory=time.monotonic)  # in its seconds


def passes_of_worker(worker: str, seconds: Mapping[str, float]) -> list[Pass]:
    """Stages that a worker went through one after another, of which the last has just ended."""
    ended = time.monotonic() - sum(seconds.values())
    passes = []
    for stage, spent in seconds.items():
        ended += spent
        passes.append(Pass(stage, spent, worker, ended))
    return passes


class Timeline:
    """The passes of one request's images, choices and tries, as they are told."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []

    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order in which the stages first ended."""
        seconds: dict[str, float] = {}
        for each in self.passes:
            seconds[each.stage] = seconds.get(each.stage, 0.0) + each.seconds
        return {stage: round(spent, 6) for stage, spent in seconds.items()}


def current_timeline() -> Timeline:
    """The timeline of the request that is in work here; outside of one, a timeline nobody reads."""
    return _CURRENT.get(None) or Timeline()


@contextmanager
def keep_timeline() -> Iterator[Timeline]:
    """A fresh timeline for all that the block does or starts."""
    timeline = Timeline()
    token = _CURRENT.set(timeline)
    try:
        yield timeline
    finally:
        _CURRENT.reset(token)
