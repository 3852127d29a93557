"""Signs of life: a thread of the worker tells the gateway for how long it has been at one thing.

The thread goes on while a model computes, so a long pass is told from a process that stands still.
"""

import threading
import time
from collections.abc import Sequence
from types import TracebackType

from workers.messages import Alive
from workers.wire import Channel

BEAT_SECONDS = 0.5


class Turn:
    """What the loop is at. Written by the loop, read by the heart."""

    def __init__(self) -> None:
        self._began_at: float | None = None  # None: it waits for messages

    @property
    def seconds(self) -> float:
        """How long this turn has taken; 0 while the loop waits."""
        began_at = self._began_at
        return 0.0 if began_at is None else time.monotonic() - began_at

    def begin(self) -> None:
        """The loop has something to do."""
        self._began_at = time.monotonic()

    def end(self) -> None:
        """It looks for more."""
        self._began_at = None


class Heart:
    """Beats inside its `with` block. Owned by the main of the process."""

    def __init__(
        self, channel: Channel, turns: Sequence[Turn], beat_seconds: float = BEAT_SECONDS
    ) -> None:
        """`turns` are those of all threads that work."""
        self._channel = channel
        self._turns = turns
        self._beat_seconds = beat_seconds
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heart", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(self._beat_seconds) and not self._channel.closed:
            self._channel.send(Alive(turn_seconds=max(turn.seconds for turn in self._turns)))
