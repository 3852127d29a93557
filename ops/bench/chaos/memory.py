"""The memory of every process over time, and how fast it grows. Linux only."""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ops.bench.chaos.house import House

MEBIBYTE_KIB = 1024
_PRIVATE = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
SETTLING_SHARE = 0.3  # of a process's time, while caches fill; the slope is that of the rest


@dataclass(frozen=True, slots=True)
class Sample:
    """Resident memory of one process that is its own, so without the shared arenas."""

    at: float  # monotonic seconds
    mebibytes: float


@dataclass(slots=True)
class Watch:
    """Takes a sample of each process every so often. Owned by the run."""

    house: House
    samples: dict[str, list[Sample]] = field(default_factory=dict)  # by process

    async def run(self, every_seconds: float) -> None:
        """Until cancelled."""
        while True:
            self._take(f"gateway {self.house.process.pid}", self.house.process.pid)
            for pid in self.house.workers():
                self._take(f"worker {pid}", pid)
            await asyncio.sleep(every_seconds)

    def _take(self, name: str, pid: int) -> None:
        try:
            found = _PRIVATE.search(Path(f"/proc/{pid}/status").read_text())
        except OSError:
            return
        if found is not None:
            sample = Sample(time.monotonic(), int(found[1]) / MEBIBYTE_KIB)
            self.samples.setdefault(name, []).append(sample)


def settled(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Those after the first part of a process's time."""
    begun = samples[0].at + SETTLING_SHARE * (samples[-1].at - samples[0].at)
    return [sample for sample in samples if sample.at >= begun]


def slope(samples: Sequence[Sample]) -> float:
    """Growth in mebibytes per minute, by least squares; 0 of fewer than two moments."""
    if len(samples) < 2:
        return 0.0
    mean_at = sum(each.at for each in samples) / len(samples)
    mean = sum(each.mebibytes for each in samples) / len(samples)
    spread = sum((each.at - mean_at) ** 2 for each in samples)
    if spread == 0:
        return 0.0
    shared = sum((each.at - mean_at) * (each.mebibytes - mean) for each in samples)
    return 60 * shared / spread
