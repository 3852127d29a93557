"""What was done lately in, how long the rest will take out."""

import math
import time
from collections.abc import Callable

_HALF_LIFE_SECONDS = 5.0
_LEAST_SECONDS = 1.0


class Pace:
    """How much is done in a second; what lies further back counts less. Owned by the event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sum = 0.0
        self._summed_at = clock()

    def add(self, amount: float) -> None:
        """So much has just been done."""
        self._fade()
        self._sum += amount

    def seconds_for(self, amount: float) -> float:
        """Time that it takes to do so much, at least a second; a second while nothing is known."""
        self._fade()
        per_second = self._sum * math.log(2) / _HALF_LIFE_SECONDS
        return max(_LEAST_SECONDS, amount / per_second) if per_second else _LEAST_SECONDS

    def _fade(self) -> None:
        now = self._clock()
        self._sum *= 0.5 ** ((now - self._summed_at) / _HALF_LIFE_SECONDS)
        self._summed_at = now
