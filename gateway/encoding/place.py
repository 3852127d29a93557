"""Plans and the fleet's load in, owners of images and the engine that answers out. Pure."""

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import shake_128

from workers.families.plan import ImagePlan

# By this share an owner may exceed an even split before affinity gives way to balance. Images whose
# embeddings are held are not placed at all, so affinity serves only those that are on their way.
_SLACK = 0.05
# By these an engine may exceed an even split before what it knows of a prompt gives way to balance:
# a share, and prompts. It saves reading the prompt, and encoding its images if they are not kept.
_ENGINE_SLACK = 0.25
_HEAD_START = 2
# By this share the last image may end later than it must before balance alone decides.
_TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class ImageTask:
    """One image to place; it carries its own plan, so no table is looked up by position."""

    index: int  # of the image in the prompt
    plan: ImagePlan
    digest: bytes  # identity of the source: equal images go to the same owner


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that could take work, with the cost that it already holds."""

    index: int
    name: str
    load: float


@dataclass(frozen=True, slots=True)
class _Image:
    """What is encoded once, however often the prompt shows it."""

    digest: bytes
    cost: float
    ranking: tuple[int, ...]  # owners, the one that it prefers first


@dataclass(frozen=True, slots=True)
class _Split:
    """Images given to owners, and the load of the fullest owner that got one."""

    owners: Mapping[bytes, int]
    highest: float


_Choice = Callable[[_Image, Mapping[int, float]], int]  # an image and all loads -> its owner


def cost(plan: ImagePlan) -> float:
    """Work of encoding an image, in patches: linear layers plus attention, which is quadratic."""
    return plan.num_patches * (1 + plan.num_patches / plan.attention_patches)


def choose_engine(engines: Sequence[Candidate], favourite: int | None) -> int:
    """The engine that answers: the least loaded, or one that knows how the prompt begins.

    Args:
        engines: there must be one; loads are numbers of prompts.
        favourite: knows it, and answers as long as it is not much busier than the others.
    """
    limit = (1 + _ENGINE_SLACK) * sum(each.load for each in engines) / len(engines) + _HEAD_START
    for each in engines:
        if each.index == favourite and each.load <= limit:
            return each.index
    return min(engines, key=lambda worker: (worker.load, worker.index)).index


def place(tasks: tuple[ImageTask, ...], owners: tuple[Candidate, ...]) -> dict[int, int]:
    """Give each image to one owner, largest first.

    An image goes to the owner that rendezvous hashing prefers for its identity, unless that owner
    would be more than a twentieth above an even split; then to the next in its order that has
    room, at last to the least loaded. Where that ends later than it must, balance alone decides.
    Equal images are placed together. The order of tasks and of candidates changes nothing.

    Returns:
        the worker of each image, by the image's index in the prompt. `owners` may be empty only
        where there are no tasks.
    """
    if not tasks:
        return {}
    images = _largest_first(tasks, sorted(owner.index for owner in owners))
    loads = {owner.index: owner.load for owner in owners}
    split = _split(images, loads)
    return {task.index: split.owners[task.digest] for task in tasks}


def _largest_first(tasks: Sequence[ImageTask], owners: Sequence[int]) -> list[_Image]:
    costs = {task.digest: cost(task.plan) for task in tasks}
    images = [_Image(digest, work, _ranking(digest, owners)) for digest, work in costs.items()]
    return sorted(images, key=lambda image: (-image.cost, image.digest))


def _ranking(digest: bytes, owners: Sequence[int]) -> tuple[int, ...]:
    """Rendezvous hashing: each pair of image and owner has a score that depends on nothing else.

    `owners` ascend. The scores of all owners are cut out of one long hash, by their index.
    """
    num_scores = owners[-1] + 1
    scores = struct.unpack(f"<{num_scores}Q", shake_128(digest).digest(8 * num_scores))
    return tuple(sorted(owners, key=scores.__getitem__, reverse=True))


def _split(images: Sequence[_Image], loads: Mapping[int, float]) -> _Split:
    even = _even_load([image.cost for image in images], loads)
    limit = (1 + _TOLERANCE) * max(even, min(loads.values()) + images[0].cost)
    kept = _fill(images, loads, partial(_preferred, limit=(1 + _SLACK) * even))
    if kept.highest <= limit:
        return kept
    spread = _fill(images, loads, _emptiest)
    packed = _fill(images, loads, partial(_fullest, limit=limit))
    return min(spread, packed, key=lambda split: split.highest)


def _even_load(costs: Sequence[float], loads: Mapping[int, float]) -> float:
    """What the owners that get work would hold each, if images could be cut."""
    total = sum(costs)
    even = math.inf
    for count, load in enumerate(sorted(loads.values()), start=1):
        if load >= even:
            break
        total += load
        even = total / count
    return even


def _fill(images: Sequence[_Image], loads: Mapping[int, float], choose: _Choice) -> _Split:
    filled = dict(loads)
    owners: dict[bytes, int] = {}
    for image in images:
        chosen = choose(image, filled)
        filled[chosen] += image.cost
        owners[image.digest] = chosen
    return _Split(owners, max(filled[owner] for owner in owners.values()))


def _preferred(image: _Image, filled: Mapping[int, float], limit: float) -> int:
    """The first in the image's ranking that stays within the limit."""
    room = limit - image.cost
    for owner in image.ranking:
        if filled[owner] <= room:
            return owner
    return _emptiest(image, filled)


def _emptiest(image: _Image, filled: Mapping[int, float]) -> int:
    return min(image.ranking, key=filled.__getitem__)


def _fullest(image: _Image, filled: Mapping[int, float], limit: float) -> int:
    """The one that stays within the limit and leaves the least room below it."""
    room = limit - image.cost
    fitting = [owner for owner in image.ranking if filled[owner] <= room]
    return max(fitting, key=filled.__getitem__) if fitting else _emptiest(image, filled)
