"""Plans and the fleet's load in, a `Placement` out: which owner encodes which image. Pure."""

from dataclasses import dataclass
from hashlib import blake2b

from workers.families.plan import ImagePlan

# Patches of one image at which attention costs as much as the rest of a tower layer: about six
# times the tower's width, and towers in use are 1000 to 1500 wide.
_ATTENTION_PATCHES = 8192
# An owner may exceed the mean load by this share before affinity gives way to balance.
_SLACK = 0.25


@dataclass(frozen=True, slots=True)
class ImageTask:
    """One image to place; it carries its own plan, so no table is looked up by position."""

    index: int  # of the image in the prompt
    plan: ImagePlan
    digest: bytes  # identity of the source: equal images prefer the same owner


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker that could take work, with the cost that it already holds."""

    index: int
    name: str
    load: float


@dataclass(frozen=True, slots=True)
class Placement:
    """`owners` maps the image's index in the prompt to a worker; `engine` answers."""

    owners: dict[int, int]
    engine: int


def cost(plan: ImagePlan) -> float:
    """Work of encoding an image, in patches: linear layers plus attention, which is quadratic."""
    return plan.num_patches * (1 + plan.num_patches / _ATTENTION_PATCHES)


def place(
    tasks: tuple[ImageTask, ...],
    owners: tuple[Candidate, ...],
    engines: tuple[Candidate, ...],
) -> Placement:
    """Give each image to one owner, largest first, and the prompt to the least loaded engine.

    An image goes to the owner that rendezvous hashing prefers for its identity, unless that owner
    would be more than a quarter above the mean load; then to the next in its order that has room,
    at last to the least loaded. Both tuples must hold at least one ready worker.
    """
    engine = min(engines, key=lambda worker: (worker.load, worker.index)).index
    loads = {owner.index: owner.load for owner in owners}
    total = sum(loads.values()) + sum(cost(task.plan) for task in tasks)
    bound = (1 + _SLACK) * total / len(owners) if owners else 0.0
    placed: dict[int, int] = {}
    for task in sorted(tasks, key=lambda task: (-cost(task.plan), task.index)):
        ranked = sorted(owners, key=lambda owner: _affinity(task.digest, owner.name), reverse=True)
        fitting = [owner for owner in ranked if loads[owner.index] + cost(task.plan) <= bound]
        chosen = fitting[0] if fitting else min(ranked, key=lambda owner: loads[owner.index])
        loads[chosen.index] += cost(task.plan)
        placed[task.index] = chosen.index
    return Placement(owners=placed, engine=engine)


def _affinity(digest: bytes, owner: str) -> bytes:
    return blake2b(digest + owner.encode(), digest_size=8).digest()
