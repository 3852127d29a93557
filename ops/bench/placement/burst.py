"""One request with many images on idle owners: how long it takes against what cannot be beaten."""

import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gateway.encoding.place import Candidate, ImageTask, cost
from ops.bench.placement.bounds import lower_bound, pigeonhole_bound
from ops.bench.placement.exact import can_split
from ops.bench.placement.mixes import GEOMETRIES, draw_sizes
from ops.bench.placement.policies import POLICIES, ours

VERDICTS = {False: "no split is", True: "one exists and is missed", None: "nobody knows"}
LIMIT = 1.1  # of the bar: makespan over the lower bound


@dataclass(frozen=True, slots=True)
class Burst:
    """A kind of request."""

    geometry: str
    mix: str
    num_images: int
    num_owners: int
    is_divisible: bool  # only requests of which no image alone exceeds the mean load


@dataclass(frozen=True, slots=True)
class Makespans:
    """Times of the fullest owner over the lower bound, of many requests."""

    num_requests: int
    num_over_limit: int
    mean: float
    highest: float


def draw_requests(burst: Burst, count: int, seed: int) -> Iterator[tuple[ImageTask, ...]]:
    """`count` requests, less those that the burst leaves out."""
    source = random.Random(f"{burst} {seed}")
    plan = GEOMETRIES[burst.geometry]
    for _ in range(count):
        plans = [plan(size) for size in draw_sizes(burst.mix, burst.num_images, source)]
        costs = [cost(each) for each in plans]
        if not burst.is_divisible or max(costs) <= sum(costs) / burst.num_owners:
            yield tuple(
                ImageTask(index, each, source.randbytes(16)) for index, each in enumerate(plans)
            )


def makespan(tasks: Sequence[ImageTask], owner_of: dict[int, int], num_owners: int) -> float:
    """Cost that the fullest owner got."""
    loads = [0.0] * num_owners
    for task in tasks:
        loads[owner_of[task.index]] += cost(task.plan)
    return max(loads)


def compare(burst: Burst, count: int, seed: int) -> dict[str, Makespans]:
    """Makespans of each policy over the lower bound; `pigeonhole` is what cannot be beaten."""
    owners = tuple(Candidate(index, f"owner-{index}", 0.0) for index in range(burst.num_owners))
    policies = {name: make() for name, make in POLICIES.items()}
    ratios: dict[str, list[float]] = {name: [] for name in ("pigeonhole", *policies)}
    for tasks in draw_requests(burst, count, seed):
        costs = [cost(task.plan) for task in tasks]
        bound = lower_bound(costs, burst.num_owners)
        ratios["pigeonhole"].append(pigeonhole_bound(costs, burst.num_owners) / bound)
        for name, policy in policies.items():
            span = makespan(tasks, policy(tasks, owners), burst.num_owners)
            ratios[name].append(span / bound)
    return {name: _summary(each) for name, each in ratios.items() if each}


def _summary(ratios: Sequence[float]) -> Makespans:
    num_over = sum(ratio > LIMIT + 1e-9 for ratio in ratios)
    return Makespans(len(ratios), num_over, statistics.fmean(ratios), max(ratios))


def missed(burst: Burst, count: int, seed: int) -> Counter[str]:
    """Requests that ours ends within the limit, and why it does not end the others so."""
    owners = tuple(Candidate(index, f"owner-{index}", 0.0) for index in range(burst.num_owners))
    found: Counter[str] = Counter()
    for tasks in draw_requests(burst, count, seed):
        costs = [cost(task.plan) for task in tasks]
        limit = LIMIT * lower_bound(costs, burst.num_owners)
        if makespan(tasks, ours(tasks, owners), burst.num_owners) <= limit + 1e-6:
            found["within"] += 1
        else:
            found[VERDICTS[can_split(costs, burst.num_owners, limit)]] += 1
    return found
