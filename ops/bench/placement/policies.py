"""Ways of giving images to owners: ours, and those it is compared with."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import count
from types import MappingProxyType

from gateway.encoding.place import Candidate, ImageTask, cost, place

# The tasks of one request and all owners, in order of their index from 0 on -> the owner of each
# task, by the task's index.
Policy = Callable[[tuple[ImageTask, ...], tuple[Candidate, ...]], dict[int, int]]


def ours(tasks: tuple[ImageTask, ...], owners: tuple[Candidate, ...]) -> dict[int, int]:
    """What the gateway does."""
    return place(tasks, owners)


def greedy_by_patches(
    tasks: tuple[ImageTask, ...], owners: tuple[Candidate, ...]
) -> dict[int, int]:
    """Most patches first, each to the owner with fewest; work of earlier requests is not seen."""
    return _greedy(tasks, [0.0] * len(owners), lambda task: float(task.plan.num_patches))


def greedy_by_load(tasks: tuple[ImageTask, ...], owners: tuple[Candidate, ...]) -> dict[int, int]:
    """Largest cost first, each to the owner that holds least, earlier requests included."""
    return _greedy(tasks, [owner.load for owner in owners], lambda task: cost(task.plan))


def _greedy(
    tasks: Sequence[ImageTask], loads: list[float], size: Callable[[ImageTask], float]
) -> dict[int, int]:
    placed: dict[int, int] = {}
    for task in sorted(tasks, key=lambda task: (-size(task), task.index)):
        owner = min(range(len(loads)), key=loads.__getitem__)
        loads[owner] += size(task)
        placed[task.index] = owner
    return placed


def round_robin() -> Policy:
    """Image by image in a circle, from request to request."""
    turn = count()
    return lambda tasks, owners: {task.index: next(turn) % len(owners) for task in tasks}


def perfect_affinity(tasks: tuple[ImageTask, ...], owners: tuple[Candidate, ...]) -> dict[int, int]:
    """Every image to the owner that rendezvous hashing gives it, however full that is."""
    return {task.index: _preferred(task.digest, len(owners)) for task in tasks}


@lru_cache(maxsize=65536)
def _preferred(digest: bytes, num_owners: int) -> int:
    def score(owner: int) -> bytes:
        return hashlib.blake2b(digest + owner.to_bytes(4), digest_size=8).digest()

    return max(range(num_owners), key=score)


# Made anew for each simulation, because a circle remembers where it stands.
POLICIES: Mapping[str, Callable[[], Policy]] = MappingProxyType(
    {
        "ours": lambda: ours,
        "greedy by patches": lambda: greedy_by_patches,
        "greedy by load": lambda: greedy_by_load,
        "round robin": round_robin,
        "perfect affinity": lambda: perfect_affinity,
    }
)
