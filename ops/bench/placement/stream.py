"""Requests one after the other, with repeats: cache hits, waiting and balance under a policy.

Owners work first come, first served, and keep embeddings in a cache that is bounded in bytes; the
latest used stay. As in life an owner's load is the cost of all its images that have not come back.

Either the gateway knows which owner holds an image or encodes it now, as ours does: then the image
is not placed, and costs no work. Or it does not: then a hit takes the policy to send the image to
an owner that holds it.
"""

import random
import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from gateway.encoding.place import Candidate, ImageTask, cost
from ops.bench.placement.mixes import GEOMETRIES, draw_sizes
from ops.bench.placement.policies import Policy

HIT_SHARE = 0.02  # time for a held image that was sent, over the time to encode it
IMAGES_PER_REQUEST = (1,) * 14 + (2,) * 3 + (4,) * 2 + (16,)
WARM_UP_SHARE = 0.25  # of the requests; they fill the caches and are not counted


@dataclass(frozen=True, slots=True)
class Stream:
    """A kind of traffic."""

    geometry: str
    mix: str
    num_owners: int
    pressure: float  # what encoding every image would take, over what owners have in that time
    is_holder_known: bool
    num_requests: int = 4000
    num_pictures: int = 2000  # that people choose from, by Zipf's law
    exponent: float = 1.0  # of that law
    cache_share: float = 0.2  # all caches together over all pictures, in bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds are in units of the mean time to encode an image."""

    hit_rate: float
    mean_seconds: float  # of a request, from its arrival to its last image
    p99_seconds: float
    imbalance: float  # work of the busiest owner over the mean


@dataclass(frozen=True, slots=True)
class _Held:
    num_tokens: int
    lands_at: float


@dataclass(slots=True)
class _Owner:
    """One simulated owner; owned by the simulation."""

    max_tokens: int
    free_at: float = 0.0
    under_way: deque[tuple[float, float]] = field(default_factory=deque)  # end, cost
    busy_seconds: float = 0.0
    num_tokens: int = 0
    held: OrderedDict[bytes, _Held] = field(default_factory=OrderedDict)  # LRU, by digest

    def load(self, now: float) -> float:
        """As the gateway sees it: all work that has not come back."""
        while self.under_way and self.under_way[0][0] <= now:
            self.under_way.popleft()
        return sum(work for _, work in self.under_way)

    def find(self, digest: bytes) -> float | None:
        """When the image lands or has landed here, if it is held."""
        if digest not in self.held:
            return None
        self.held.move_to_end(digest)
        return self.held[digest].lands_at

    def serve(self, task: ImageTask, now: float) -> tuple[float, bool]:
        """Queue one image; returns when it is done and whether it was held."""
        is_hit = self.find(task.digest) is not None
        work = cost(task.plan) * (HIT_SHARE if is_hit else 1)
        self.free_at = max(now, self.free_at) + work
        self.busy_seconds += work
        self.under_way.append((self.free_at, cost(task.plan)))
        if not is_hit:
            self._keep(task.digest, _Held(task.plan.num_tokens, self.free_at))
        return self.free_at, is_hit

    def _keep(self, digest: bytes, held: _Held) -> None:
        self.held[digest] = held
        self.num_tokens += held.num_tokens
        while self.num_tokens > self.max_tokens:
            _, given_up = self.held.popitem(last=False)
            self.num_tokens -= given_up.num_tokens


class _Simulation:
    """Owners, what is on its way to them, and what the gateway knows."""

    def __init__(self, stream: Stream, policy: Policy, max_tokens: int) -> None:
        self._stream = stream
        self._policy = policy
        self.owners = [_Owner(max_tokens) for _ in range(stream.num_owners)]
        self._holders: dict[bytes, int] = {}

    def request(self, tasks: tuple[ImageTask, ...], now: float) -> tuple[float, int]:
        """Serve one request; returns when its last image is done and how many were hits."""
        rest = tasks
        ends = [now]
        if self._stream.is_holder_known:
            known = {task.index: self._find(task.digest) for task in tasks}
            rest = tuple(task for task in tasks if known[task.index] is None)
            ends += [end for end in known.values() if end is not None]
        num_hits = len(tasks) - len(rest)
        owner_of = self._policy(rest, self._candidates(now)) if rest else {}
        for task in rest:
            end, is_hit = self._send(task, owner_of[task.index], now)
            ends.append(end)
            num_hits += is_hit
        return max(ends), num_hits

    def _find(self, digest: bytes) -> float | None:
        holder = self._holders.get(digest)
        return None if holder is None else self.owners[holder].find(digest)

    def _candidates(self, now: float) -> tuple[Candidate, ...]:
        return tuple(
            Candidate(number, f"owner-{number}", owner.load(now))
            for number, owner in enumerate(self.owners)
        )

    def _send(self, task: ImageTask, number: int, now: float) -> tuple[float, bool]:
        end, is_hit = self.owners[number].serve(task, now)
        self._holders[task.digest] = number
        return end, is_hit


def simulate(stream: Stream, policy: Policy, seed: int) -> Outcome:
    """Play the stream; equal seeds give every policy the same requests at the same moments."""
    source = random.Random(seed)
    pictures = _draw_pictures(stream, source)
    weights = _weights(stream)
    cumulated = list(accumulate(weights))
    tokens = sum(picture.plan.num_tokens for picture in pictures)
    simulation = _Simulation(stream, policy, int(stream.cache_share * tokens / stream.num_owners))
    costs = (cost(picture.plan) for picture in pictures)
    unit = sum(map(mul, costs, weights)) / cumulated[-1]
    gap = unit * statistics.fmean(IMAGES_PER_REQUEST) / (stream.pressure * stream.num_owners)
    now, num_images, num_hits = 0.0, 0, 0
    seconds: list[float] = []
    for number in range(stream.num_requests):
        now += source.expovariate(1 / gap)
        count = source.choice(IMAGES_PER_REQUEST)
        chosen = source.choices(pictures, cum_weights=cumulated, k=count)
        tasks = tuple(ImageTask(at, each.plan, each.digest) for at, each in enumerate(chosen))
        end, hits = simulation.request(tasks, now)
        if number >= WARM_UP_SHARE * stream.num_requests:
            num_images, num_hits = num_images + count, num_hits + hits
            seconds.append((end - now) / unit)
    busy = [owner.busy_seconds for owner in simulation.owners]
    return Outcome(
        hit_rate=num_hits / num_images,
        mean_seconds=statistics.fmean(seconds),
        p99_seconds=statistics.quantiles(seconds, n=100)[-1],
        imbalance=max(busy) / statistics.fmean(busy),
    )


def _draw_pictures(stream: Stream, source: random.Random) -> list[ImageTask]:
    plan = GEOMETRIES[stream.geometry]
    sizes = draw_sizes(stream.mix, stream.num_pictures, source)
    return [ImageTask(at, plan(size), source.randbytes(16)) for at, size in enumerate(sizes)]


def _weights(stream: Stream) -> list[float]:
    """How often each picture is sent, by Zipf's law."""
    return [float(rank**-stream.exponent) for rank in range(1, stream.num_pictures + 1)]
