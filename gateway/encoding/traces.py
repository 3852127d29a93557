"""What images left in engines' KV caches: source digests in, feature identities and engines out."""

from collections import OrderedDict
from dataclasses import dataclass

MAX_TRACES = 65_536  # about 0.4 kB each


@dataclass(frozen=True, slots=True)
class Trace:
    """An image that a prompt showed to an engine."""

    identity: bytes  # as in `Span`
    engine: int  # the worker that saw it last


class TraceBook:
    """The images shown latest; they outlive their embeddings. Owned by the event loop.

    A trace is only a hint: what the engine knew of the image may have made room for others.
    """

    def __init__(self, max_traces: int = MAX_TRACES) -> None:
        """With 0, as where engines keep nothing, nothing is ever found."""
        self._max_traces = max_traces
        self._traces: OrderedDict[bytes, Trace] = OrderedDict()  # by source digest

    def learn(self, digest: bytes, trace: Trace) -> None:
        """Note that an engine was shown an image just now."""
        self._traces[digest] = trace
        self._traces.move_to_end(digest)
        if len(self._traces) > self._max_traces:
            self._traces.popitem(last=False)

    def find(self, digest: bytes) -> Trace | None:
        """The trace of an image."""
        return self._traces.get(digest)

    def forget(self, engine: int) -> None:
        """Drop what an engine was shown whose process ended."""
        for digest in [each for each, trace in self._traces.items() if trace.engine == engine]:
            del self._traces[digest]
