"""Regions never overlap, are never lost, and go to whoever waited longest."""

import asyncio
import os
import random

import pytest

from workers.arena import Arena, Arenas
from workers.messages import Region
from workers.ranges import ALIGNMENT, ArenaTooSmall, BadRegion

SIZE = 64 * ALIGNMENT


def region_of(arena: Arena, num_bytes: int) -> Region:
    region = arena.allocate(num_bytes)
    assert region is not None
    return region


@pytest.mark.parametrize("seed", range(5))
def test_random_use_keeps_every_byte_free_or_owned_once(seed: int) -> None:
    arena, chance = Arena(3, SIZE), random.Random(seed)
    taken: dict[Region, bytes] = {}
    for _ in range(2000):
        if taken and chance.random() < 0.5:
            region = chance.choice(list(taken))
            assert bytes(arena.view(region)) == taken.pop(region)
            arena.free(region)
        else:
            size = chance.randrange(1, SIZE // 4)
            new = arena.allocate(size)
            if new is not None:
                assert (new.arena, new.num_bytes, new.offset % ALIGNMENT) == (3, size, 0)
                taken[new] = chance.randbytes(size)
                arena.view(new)[:] = taken[new]
        arena.check()
    for region in taken:
        arena.free(region)
    arena.check()
    assert arena.num_bytes_used == 0
    assert arena.allocate(SIZE) is not None


def test_a_split_region_is_freed_piece_by_piece() -> None:
    arena = Arena(0, SIZE)
    whole = region_of(arena, 2 * ALIGNMENT + 10 + ALIGNMENT)
    sizes = (ALIGNMENT + 1, 10, 3)
    with pytest.raises(BadRegion):
        arena.split(whole, sizes[:2])

    parts = arena.split(whole, sizes)

    arena.check()
    assert [part.num_bytes for part in parts] == list(sizes)
    assert [part.offset for part in parts] == [0, 2 * ALIGNMENT, 3 * ALIGNMENT]
    with pytest.raises(BadRegion):
        arena.free(whole)
    arena.free(parts[1])
    assert region_of(arena, ALIGNMENT).offset == 2 * ALIGNMENT
    arena.free(parts[2])
    arena.free(parts[0])
    arena.check()


def test_check_notices_a_lost_range() -> None:
    arena = Arena(0, SIZE)
    region = region_of(arena, 100)
    del arena._taken[region.offset]
    with pytest.raises(AssertionError):
        arena.check()


def test_lowest_address_is_used_first() -> None:
    arena = Arena(0, SIZE)
    first, second = region_of(arena, 10), region_of(arena, 10)
    region_of(arena, 10)
    arena.free(second)
    arena.free(first)
    assert region_of(arena, 2 * ALIGNMENT).offset == 0


def test_full_arena_allocates_nothing() -> None:
    arena = Arena(0, SIZE)
    region_of(arena, SIZE)
    assert arena.allocate(1) is None


def test_region_is_freed_exactly_once() -> None:
    arena = Arena(0, SIZE)
    region = region_of(arena, 100)
    with pytest.raises(BadRegion):
        arena.free(Region(0, region.offset, 99))
    arena.free(region)
    with pytest.raises(BadRegion):
        arena.free(region)
    arena.check()


@pytest.mark.parametrize("num_bytes", [0, -1])
def test_empty_region_cannot_be_asked_for(num_bytes: int) -> None:
    with pytest.raises(ValueError, match=str(num_bytes)):
        Arena(0, SIZE).allocate(num_bytes)


def test_worker_and_gateway_see_the_same_bytes() -> None:
    mine, other = Arena(0, SIZE), Arena(1, 2 * SIZE)
    worker = Arenas([os.dup(mine.file_number), os.dup(other.file_number)])
    region = region_of(other, 100)
    other.view(region)[:] = bytes(range(100))
    assert bytes(worker.view(region)) == bytes(range(100))
    worker.view(region)[7] = 200
    assert other.view(region)[7] == 200
    assert not any(mine.view(Region(0, 0, SIZE)))


@pytest.mark.parametrize(
    "region",
    [
        Region(0, SIZE - 1, 2),
        Region(0, -1, 2),
        Region(0, 4, -2),
        Region(1, 0, 1),
        Region(-1, 0, 1),
    ],
)
def test_region_outside_the_arena_is_refused_at_both_ends(region: Region) -> None:
    arena = Arena(0, SIZE)
    with pytest.raises(BadRegion):
        arena.view(region)
    with pytest.raises(BadRegion):
        Arenas([os.dup(arena.file_number)]).view(region)


def test_untouched_memory_costs_nothing() -> None:
    arena = Arena(0, 1 << 30)
    region = region_of(arena, 1 << 20)
    arena.view(region)[:] = bytes(1 << 20)
    assert os.fstat(arena.file_number).st_blocks * 512 < 4 << 20


async def start_waiting(arena: Arena, *sizes: int) -> list[asyncio.Task[Region]]:
    tasks = [asyncio.create_task(arena.reserve(size)) for size in sizes]
    await asyncio.sleep(0)
    return tasks


def test_room_goes_to_the_longest_waiting_even_if_a_smaller_one_fits() -> None:
    async def scenario() -> None:
        arena = Arena(0, SIZE)
        left, right = region_of(arena, SIZE // 2), region_of(arena, SIZE // 2)
        large, small = await start_waiting(arena, SIZE // 2 + 1, 1)
        arena.free(right)
        await asyncio.sleep(0)
        assert not large.done()
        assert not small.done()
        assert arena.allocate(1) is None
        arena.free(left)
        assert (await large).offset == 0
        assert (await small).offset > SIZE // 2
        arena.check()

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_whoever_gives_up_waiting_lets_the_next_one_in() -> None:
    async def scenario() -> None:
        arena = Arena(0, SIZE)
        region_of(arena, SIZE // 2)
        large, small = await start_waiting(arena, SIZE, 100)
        large.cancel()
        assert (await small).num_bytes == 100
        assert large.cancelled()
        assert arena.allocate(100) is not None
        arena.check()

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_region_given_in_the_moment_of_giving_up_is_not_lost() -> None:
    async def scenario() -> None:
        arena = Arena(0, SIZE)
        blocker = region_of(arena, SIZE)
        (waiting,) = await start_waiting(arena, 100)
        arena.free(blocker)  # serves the waiter, whose task has not run since
        assert arena.num_bytes_used > 0
        waiting.cancel()
        await asyncio.wait([waiting])
        assert waiting.cancelled()
        assert arena.num_bytes_used == 0
        arena.check()

    asyncio.run(asyncio.wait_for(scenario(), 5))


def test_what_can_never_fit_is_refused_at_once() -> None:
    arena = Arena(0, SIZE)
    with pytest.raises(ArenaTooSmall, match=rf"{SIZE + 1}.*{SIZE}"):
        asyncio.run(arena.reserve(SIZE + 1))


def test_waiting_under_random_cancellation_ends_with_an_empty_arena() -> None:
    async def use(arena: Arena, chance: random.Random) -> None:
        region = await arena.reserve(chance.randrange(1, SIZE))
        try:
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            arena.free(region)

    async def scenario() -> None:
        arena, chance = Arena(0, SIZE), random.Random(2)
        tasks = [asyncio.create_task(use(arena, chance)) for _ in range(300)]
        while not all(task.done() for task in tasks):
            chance.choice(tasks).cancel()
            await asyncio.sleep(0)
            arena.check()
        assert arena.num_bytes_used == 0
        assert any(not task.cancelled() for task in tasks)

    asyncio.run(asyncio.wait_for(scenario(), 5))
