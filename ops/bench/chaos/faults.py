"""Workers are killed or stopped, one at a time, and the pool is watched until it is whole again."""

import asyncio
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass

import httpx

from ops.bench.chaos.house import House

WHOLE_SECONDS = 180.0


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and how long it was felt."""

    name: str
    began_at: float  # monotonic seconds
    whole_at: float | None  # when all workers took jobs again; None: not in time


async def break_workers(
    house: House, chance: random.Random, seconds: float, rest_seconds: float
) -> list[Fault]:
    """Kill or stop workers for so long, with a rest after each has been replaced."""
    faults: list[Fault] = []
    num_workers = len(house.workers())
    limit = time.monotonic() + seconds
    while time.monotonic() + rest_seconds < limit:
        await asyncio.sleep(rest_seconds * (0.5 + chance.random()))
        number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP))
        victim = chance.choice(house.workers() or [0])
        began_at = time.monotonic()
        if victim:
            with suppress(ProcessLookupError):
                os.kill(victim, number)
            whole_at = await _until_whole(house, victim, num_workers)
            faults.append(Fault(number.name, began_at, whole_at))
            print(f"  {_describe(faults[-1])}", flush=True)
    return faults


async def _until_whole(house: House, victim: int, num_workers: int) -> float | None:
    limit = time.monotonic() + WHOLE_SECONDS
    while time.monotonic() < limit:
        await asyncio.sleep(0.1)
        with suppress(httpx.HTTPError):
            if victim not in house.workers() and await house.num_ready() == num_workers:
                return time.monotonic()
    return None


def _describe(fault: Fault) -> str:
    if fault.whole_at is None:
        return f"{fault.name}: the pool was not whole again within {WHOLE_SECONDS:g} s"
    return f"{fault.name}: the pool was whole again after {fault.whole_at - fault.began_at:.1f} s"
