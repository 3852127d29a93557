"""Placed images in, arena room for their pixels and embeddings out.

A request reserves all it needs on one owner's arena in one piece, and the arenas in ascending
order, so that two requests never wait for each other.
"""

from dataclasses import dataclass

from gateway.dispatch import Lease
from gateway.errors import CallerError, NotReady
from gateway.place import ImageTask, Placement
from workers.arena import ArenaTooSmall
from workers.messages import Region
from workers.pool import Pool

_ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class Place:
    """Where one image's pixels lie and where its embeddings go."""

    pixels: Region
    embeddings: Region


@dataclass(frozen=True, slots=True)
class Shelf:
    """Room for all images of a request that one owner encodes, by the image's prompt index."""

    lease: Lease
    places: dict[int, Place]


async def reserve_shelves(
    pool: Pool, tasks: list[ImageTask], placement: Placement
) -> dict[int, Shelf]:
    """Wait for room on every owner that the placement names; nothing is held on failure.

    Raises:
        CallerError: the images can never fit an arena.
        NotReady: an owner was lost meanwhile.
    """
    shelves: dict[int, Shelf] = {}
    try:
        for owner in sorted(set(placement.owners.values())):
            mine = [task for task in tasks if placement.owners[task.index] == owner]
            shelves[owner] = await _reserve(pool, owner, mine)
    except BaseException:
        for shelf in shelves.values():
            shelf.lease.release()
        raise
    return shelves


async def _reserve(pool: Pool, owner: int, tasks: list[ImageTask]) -> Shelf:
    per_token = pool.fleet().workers[owner].embedding_bytes_per_token
    if per_token == 0:
        raise NotReady("the image's owner is starting again; try again")
    sizes = [_sizes(task, per_token) for task in tasks]
    total = sum(_padded(pixels) + _padded(embeddings) for pixels, embeddings in sizes)
    arena = pool.arena(owner)
    try:
        region = await arena.reserve(total)
    except ArenaTooSmall as error:
        raise CallerError(
            f"the images need {total} bytes of shared memory; the limit is {arena.num_bytes}",
            param="messages",
            code="images_too_large",
        ) from error
    places: dict[int, Place] = {}
    offset = region.offset
    for task, (pixels, embeddings) in zip(tasks, sizes, strict=True):
        behind = offset + _padded(pixels)
        places[task.index] = Place(
            Region(region.arena, offset, pixels), Region(region.arena, behind, embeddings)
        )
        offset = behind + _padded(embeddings)
    return Shelf(Lease(arena, region), places)


def _sizes(task: ImageTask, per_token: int) -> tuple[int, int]:
    height, width = task.plan.resized_size
    return height * width * 3, task.plan.num_tokens * per_token


def _padded(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
