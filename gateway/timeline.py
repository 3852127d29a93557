"""How long one request has been at each stage, for its line in the log.

A request's tasks inherit its timeline through the context, so no stage has to hand it on. What is
heard of a worker arrives outside of that context; whoever waits for it keeps the timeline.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CURRENT: ContextVar["Timeline"] = ContextVar("timeline")


class Timeline:
    """Seconds by stage, added up over a request's images, choices and tries."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """One pass of a stage took so long."""
        self._seconds[stage] = self._seconds.get(stage, 0.0) + seconds

    def stages(self) -> dict[str, float]:
        """Seconds by stage, in the order in which the stages first ended."""
        return {stage: round(seconds, 6) for stage, seconds in self._seconds.items()}


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
