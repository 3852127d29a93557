"""Placed images in, arena room for their pixels and embeddings out.

A request reserves all it needs on one owner's arena in one piece, and the arenas in ascending
order, so that two requests never wait for each other.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate

from gateway.dispatch import Lease
from gateway.errors import CallerError, NotReady
from gateway.place import ImageTask, Placement
from workers.arena import ArenaTooSmall, aligned
from workers.messages import Region
from workers.pool import Pool


@dataclass(frozen=True, slots=True)
class Shelf:
    """Where one image's pixels lie, where its embeddings go, and who encodes it.

    The lease covers both regions, and those of the request's other images with the same owner.
    """

    owner: int
    lease: Lease
    pixels: Region
    embeddings: Region


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
        shelves |= await _reserve(pool, owner, mine, cleanup)
    return shelves


async def _reserve(
    pool: Pool, owner: int, tasks: list[ImageTask], cleanup: ExitStack
) -> dict[int, Shelf]:
    per_token = pool.fleet().workers[owner].embedding_bytes_per_token
    if per_token == 0:
        raise NotReady("the image's owner is starting; try again")
    sizes = [size for task in tasks for size in _sizes(task, per_token)]
    total = sum(map(aligned, sizes))
    arena = pool.arena(owner)
    try:
        lease = Lease(arena, await arena.reserve(total))
    except ArenaTooSmall as error:
        raise CallerError(
            f"the images need {total} bytes of shared memory at once; "
            f"the limit is {arena.num_bytes}",
            param="messages",
            code="images_too_large",
        ) from error
    cleanup.callback(lease.release)
    regions = _split(lease.region, sizes)
    pairs = zip(regions[::2], regions[1::2], strict=True)
    return {
        task.index: Shelf(owner, lease, pixels, embeddings)
        for task, (pixels, embeddings) in zip(tasks, pairs, strict=True)
    }


def _sizes(task: ImageTask, per_token: int) -> tuple[int, int]:
    """Bytes of an image's pixels and of its embeddings."""
    height, width = task.plan.resized_size
    return height * width * 3, task.plan.num_tokens * per_token


def _split(region: Region, sizes: list[int]) -> list[Region]:
    """Aligned regions of these sizes, one behind the other."""
    ends = list(accumulate(map(aligned, sizes), initial=region.offset))
    starts = ends[:-1]
    return [Region(region.arena, start, size) for start, size in zip(starts, sizes, strict=True)]
