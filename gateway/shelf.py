"""Placed images in, arena room for their pixels and embeddings out.

A request reserves all it needs on one owner's arena at once, and the arenas in ascending order,
so that two requests never wait for each other.
"""

from contextlib import ExitStack
from dataclasses import dataclass

from gateway.dispatch import Lease
from gateway.errors import CallerError, NotReady
from gateway.place import ImageTask, Placement
from workers.arena import ArenaTooSmall
from workers.messages import Region
from workers.pool import Pool


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where one image's pixels lie, where its embeddings go, and who encodes it."""

    owner: int
    pixels: Lease
    embeddings: Lease


async def reserve_shelves(
    pool: Pool, tasks: list[ImageTask], placement: Placement, cleanup: ExitStack
) -> dict[int, Shelf]:
    """Wait for room on every owner that the placement names; `cleanup` gives it back.

    Returns:
        each image's shelf, by its index in the prompt.

    Raises:
        CallerError: the images can never fit an arena.
        NotReady: an owner was lost meanwhile.
    """
    shelves: dict[int, Shelf] = {}
    for owner in sorted(set(placement.owners.values())):
        mine = [task for task in tasks if placement.owners[task.index] == owner]
        leases = await _reserve(pool, owner, mine, cleanup)
        pairs = zip(leases[::2], leases[1::2], strict=True)
        for task, (pixels, embeddings) in zip(mine, pairs, strict=True):
            shelves[task.index] = Shelf(owner, pixels, embeddings)
    return shelves


async def _reserve(
    pool: Pool, owner: int, tasks: list[ImageTask], cleanup: ExitStack
) -> list[Lease]:
    """Two leases per image: its pixels, its embeddings."""
    per_token = pool.fleet().workers[owner].facts.embedding_bytes_per_token
    if per_token == 0:
        raise NotReady("the image's owner is starting; try again")
    arena = pool.arenas[owner]
    sizes = [size for task in tasks for size in _sizes(task, per_token)]
    try:
        regions: tuple[Region, ...] = await arena.reserve_all(sizes)
    except ArenaTooSmall as error:
        raise CallerError(
            f"the images need {sum(sizes)} bytes of shared memory at once; "
            f"the limit is {arena.num_bytes}",
            param="messages",
            code="images_too_large",
        ) from error
    leases = [Lease(arena, region) for region in regions]
    for lease in leases:
        cleanup.callback(lease.release)
    return leases


def _sizes(task: ImageTask, per_token: int) -> tuple[int, int]:
    height, width = task.plan.resized_size
    return height * width * 3, task.plan.num_tokens * per_token
