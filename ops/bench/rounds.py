"""The measurement: targets and contents in, one `Round` per target and turn out, interleaved."""

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass

import httpx

from ops.bench import cpu
from ops.bench.client import Failure, Outcome, Target, ask, make_body
from ops.bench.workload import Content, Workload

REST_SECONDS = 0.3  # before each timed part, so that one target's tail is not in the next
# Below the keep-alive of common servers (uvicorn: 5), or a send may meet a closing connection.
KEEPALIVE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Round:
    """What one target did with one round's requests."""

    target: str
    turn: int
    outcomes: tuple[Outcome, ...]
    wall_seconds: float
    client_seconds: float  # CPU time of this program
    server_seconds: Mapping[str, float]  # CPU time by process; empty for a target without pid
    foreign_cores: float | None  # None: not every target's pid is known


def open_client(timeout_seconds: float) -> httpx.AsyncClient:
    """A client without a limit on connections; proxies of the environment are not used."""
    limits = httpx.Limits(
        max_connections=None,
        max_keepalive_connections=None,
        keepalive_expiry=KEEPALIVE_SECONDS,
    )
    return httpx.AsyncClient(timeout=timeout_seconds, limits=limits, trust_env=False)


async def warm_up(
    client: httpx.AsyncClient, target: Target, contents: Sequence[Content], workload: Workload
) -> tuple[Failure, ...]:
    """Send the untimed requests in a closed loop; returns those that failed."""
    bodies = [make_body(target, content, workload) for content in contents]
    outcomes = await closed_loop(client, target, bodies, workload.concurrency)
    return tuple(outcome for outcome in outcomes if isinstance(outcome, Failure))


async def interleave(
    client: httpx.AsyncClient,
    targets: Sequence[Target],
    contents: Sequence[Content],
    workload: Workload,
    seed: int,
) -> AsyncIterator[Round]:
    """Give each round's contents to every target, one target at a time.

    Who comes first moves on by one each round, so that a drift of the machine hits all alike.
    """
    for turn in range(workload.num_rounds):
        start = turn * workload.num_requests
        of_turn = contents[start : start + workload.num_requests]
        for place in range(len(targets)):
            target = targets[(turn + place) % len(targets)]
            bodies = [make_body(target, content, workload) for content in of_turn]
            await asyncio.sleep(REST_SECONDS)
            sending = _send(client, target, bodies, workload, seed + turn)
            yield await _measure(targets, target, turn, sending)


async def _send(
    client: httpx.AsyncClient,
    target: Target,
    bodies: Sequence[bytes],
    workload: Workload,
    seed: int,
) -> tuple[Outcome, ...]:
    if workload.requests_per_second is None:
        return await closed_loop(client, target, bodies, workload.concurrency)
    delays = arrival_delays(len(bodies), workload.requests_per_second, seed)
    return await fixed_rate(client, target, bodies, delays, workload.concurrency)


async def _measure(
    targets: Sequence[Target],
    target: Target,
    turn: int,
    sending: Awaitable[tuple[Outcome, ...]],
) -> Round:
    before = cpu.read() if cpu.can_read() else None
    started_at, client_started_at = time.perf_counter(), time.process_time()
    outcomes = await sending
    wall_seconds = time.perf_counter() - started_at
    client_seconds = time.process_time() - client_started_at
    server_seconds, foreign = _cores(before, targets, target)
    return Round(
        target=target.name,
        turn=turn,
        outcomes=outcomes,
        wall_seconds=wall_seconds,
        client_seconds=client_seconds,
        server_seconds=server_seconds,
        foreign_cores=foreign,
    )


def _cores(
    before: cpu.Reading | None, targets: Sequence[Target], target: Target
) -> tuple[dict[str, float], float | None]:
    if before is None:
        return {}, None
    after = cpu.read()
    of_target = {} if target.pid is None else cpu.used_seconds(before, after, [target.pid])
    pids = [each.pid for each in targets if each.pid is not None]
    if len(pids) < len(targets):
        return of_target, None
    return of_target, cpu.foreign_cores(before, after, [*pids, os.getpid()])


async def closed_loop(
    client: httpx.AsyncClient, target: Target, bodies: Sequence[bytes], concurrency: int
) -> tuple[Outcome, ...]:
    """Keep `concurrency` requests in flight until all are answered."""
    waiting = iter(bodies)

    async def caller() -> list[Outcome]:
        return [await ask(client, target, body) for body in waiting]

    async with asyncio.TaskGroup() as callers:
        tasks = [callers.create_task(caller()) for _ in range(concurrency)]
    return tuple(outcome for task in tasks for outcome in task.result())


def arrival_delays(count: int, requests_per_second: float, seed: int) -> tuple[float, ...]:
    """When each request is due, in seconds from the start: Poisson arrivals at this mean rate."""
    gaps = random.Random(seed)
    delays: list[float] = []
    due = 0.0
    for _ in range(count):
        due += gaps.expovariate(requests_per_second)
        delays.append(due)
    return tuple(delays)


async def fixed_rate(
    client: httpx.AsyncClient,
    target: Target,
    bodies: Sequence[bytes],
    delays: Sequence[float],
    concurrency: int,
) -> tuple[Outcome, ...]:
    """Send each request when it is due, whether or not earlier ones are answered."""
    places = asyncio.Semaphore(concurrency)
    started_at = time.perf_counter()

    async def caller(body: bytes, due_at: float) -> Outcome:
        await asyncio.sleep(due_at - time.perf_counter())
        async with places:
            return await ask(client, target, body, due_at)

    async with asyncio.TaskGroup() as callers:
        tasks = [
            callers.create_task(caller(body, started_at + delay))
            for body, delay in zip(bodies, delays, strict=True)
        ]
    return tuple(task.result() for task in tasks)
