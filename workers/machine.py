"""What this process may take of its machine: memory and cores, the container's limits included."""

import math
import os
import sys
from pathlib import Path

_MEMORY = Path("/proc/meminfo")
_CONTROL_GROUP = Path("/sys/fs/cgroup")  # version 2, as a container sees its own


def available_bytes(memory: Path = _MEMORY, group: Path = _CONTROL_GROUP) -> int | None:
    """Memory that can be had without swapping, in bytes; None where the system does not say."""
    try:
        lines = memory.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    free = int(_numbers(lines, ":")["MemAvailable"]) * 1024
    limit = _bytes_left(group)
    return free if limit is None else min(free, limit)


def num_cores(group: Path = _CONTROL_GROUP) -> int:
    """Cores that can compute at a time; part of one counts as one."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    try:
        quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
    except OSError:
        return cores
    return cores if quota == "max" else min(cores, math.ceil(int(quota) / int(period)))


def _bytes_left(group: Path) -> int | None:
    """Up to the container's limit. Of what its files take, the kernel gives up the inactive."""
    try:
        most = (group / "memory.max").read_text(encoding="ascii").strip()
        used = int((group / "memory.current").read_text(encoding="ascii"))
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    idle = int(_numbers(lines, " ")["inactive_file"])
    return None if most == "max" else max(0, int(most) - used + idle)


def _numbers(lines: list[str], mark: str) -> dict[str, str]:
    parted = (line.partition(mark) for line in lines)
    return {name: rest.split()[0] for name, _, rest in parted}
