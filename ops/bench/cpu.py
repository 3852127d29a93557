"""Who used the cores: two readings of /proc in, cores and CPU seconds out. Linux only."""

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Columns of the first line of /proc/stat in which a core was not ours to use or is in use:
# user, nice, system, irq, softirq, steal. The others are idle and iowait.
BUSY_COLUMNS = (1, 2, 3, 6, 7, 8)


@dataclass(frozen=True, slots=True)
class Process:
    """One process's line of /proc/PID/stat, as far as it matters here."""

    name: str
    parent: int
    cpu_seconds: float  # user and system, all threads


@dataclass(frozen=True, slots=True)
class Reading:
    """The CPU time used so far by each process and by the whole machine."""

    taken_at: float  # perf_counter seconds
    busy_seconds: float  # all cores together
    processes: Mapping[int, Process]


def can_read() -> bool:
    """Whether this system has the files that `read` reads."""
    return (PROC / "stat").exists()


def read() -> Reading:
    """Read every process's CPU time, and the machine's."""
    ticks_per_second = os.sysconf("SC_CLK_TCK")
    columns = (PROC / "stat").read_text().split("\n", 1)[0].split()
    busy_ticks = sum(int(columns[column]) for column in BUSY_COLUMNS)
    processes: dict[int, Process] = {}
    for folder in PROC.iterdir():
        if folder.name.isdigit() and (process := _read_process(folder, ticks_per_second)):
            processes[int(folder.name)] = process
    return Reading(time.perf_counter(), busy_ticks / ticks_per_second, processes)


def _read_process(folder: Path, ticks_per_second: int) -> Process | None:
    try:
        head, _, tail = (folder / "stat").read_text().rpartition(")")
    except OSError:
        return None  # it ended meanwhile
    fields = tail.split()
    ticks = int(fields[11]) + int(fields[12])
    return Process(head.partition("(")[2], int(fields[1]), ticks / ticks_per_second)


def family(reading: Reading, roots: Iterable[int]) -> frozenset[int]:
    """These processes and everything below them."""
    found: set[int] = set()
    newest = set(roots)
    while newest:
        found |= newest
        newest = {
            pid for pid, process in reading.processes.items() if process.parent in newest
        } - found
    return frozenset(found)


def used_seconds(before: Reading, after: Reading, roots: Iterable[int]) -> dict[str, float]:
    """CPU seconds of each process of these families between two readings, by `name (pid)`.

    What a process that ended in between used is not seen, and counts as foreign.
    """
    used: dict[str, float] = {}
    for pid in sorted(family(after, roots) & after.processes.keys()):
        process = after.processes[pid]
        earlier = before.processes.get(pid)
        seconds = process.cpu_seconds - (earlier.cpu_seconds if earlier else 0.0)
        if seconds > 0:
            used[f"{process.name} ({pid})"] = seconds
    return used


def foreign_cores(before: Reading, after: Reading, roots: Iterable[int]) -> float:
    """Mean number of cores that processes outside these families, or the host, used."""
    ours = sum(used_seconds(before, after, roots).values())
    busy = after.busy_seconds - before.busy_seconds
    return max(0.0, (busy - ours) / (after.taken_at - before.taken_at))
