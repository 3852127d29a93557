"""Signs of life of one worker in, word that it is stuck out."""

import asyncio
import time

from config.settings import WorkerSettings
from workers.messages import Alive

LOOKS = 8  # within the time that a worker may be silent


class Vigil:
    """Watches one life of a worker, from its first sign of life. Owned by its keeper."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._silent_seconds = settings.silent_seconds
        self._turn_seconds = settings.turn_seconds
        self._heard_at: float | None = None
        self._turn_began_at: float | None = None

    def hear(self, sign: Alive) -> None:
        """Take a sign of life."""
        self._heard_at = time.monotonic()
        self._turn_began_at = self._heard_at - sign.turn_seconds if sign.turn_seconds else None

    async def watch(self) -> str:
        """Wait until the worker is stuck; how that shows, in words that follow its name."""
        look_seconds = min(self._silent_seconds, self._turn_seconds) / LOOKS
        fault = ""
        while not fault:
            slept_at = time.monotonic()
            await asyncio.sleep(look_seconds)
            self._forgive(time.monotonic() - slept_at - look_seconds, look_seconds)
            fault = self._fault(time.monotonic())
        return fault

    def _forgive(self, late_seconds: float, look_seconds: float) -> None:
        """Time in which the gateway itself stood still does not count: it could hear nothing."""
        if late_seconds > look_seconds and self._heard_at is not None:
            self._heard_at += late_seconds
            self._turn_began_at = None

    def _fault(self, now: float) -> str:
        if self._heard_at is not None and now - self._heard_at > self._silent_seconds:
            return f"gave no sign of life for {self._silent_seconds:g} seconds"
        if self._turn_began_at is not None and now - self._turn_began_at > self._turn_seconds:
            return f"was at one step for more than {self._turn_seconds:g} seconds"
        return ""
