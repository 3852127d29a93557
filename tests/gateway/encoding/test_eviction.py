"""What is dropped for a large piece: checked against every choice there is, in small memories."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from gateway.encoding.eviction import choose_victims
from workers.messages import Region
from workers.ranges import Allocator

UNIT = 64  # bytes


@dataclass(frozen=True)
class Item:
    name: int
    region: Region


def fill(place: Allocator, sizes: Sequence[int]) -> list[Item]:
    """Items of these sizes in units, one behind the other."""
    items = []
    for name, size in enumerate(sizes):
        region = place.allocate(size * UNIT - name % UNIT)  # what is left of the last unit is lost
        assert region is not None
        items.append(Item(name, region))
    return items


def units(item: Item) -> int:
    return -(-item.region.num_bytes // UNIT)


def best_choice(kept: Sequence[Item], place: Allocator, num_units: int) -> set[int]:
    """Names of the items, by trying every range of units."""
    owner: list[int | None] = [-1] * (place.num_bytes // UNIT)  # -1: somebody's, None: free
    rank = {item.name: index for index, item in enumerate(kept)}
    size = {item.name: units(item) for item in kept}
    starts = [unit for unit in range(len(owner)) if place.gap_after(unit * UNIT)]
    for start in starts:
        for unit in range(start, start + place.gap_after(start * UNIT) // UNIT):
            owner[unit] = None
    for item in kept:
        first = item.region.offset // UNIT
        owner[first : first + units(item)] = [item.name] * units(item)
    best: tuple[int, int, int] | None = None
    names: set[int] = set()
    for start in range(len(owner) - num_units + 1):
        window = owner[start : start + num_units]
        if -1 in window:
            continue
        found = {name for name in window if name is not None}
        found_key = (max(rank[each] for each in found), sum(size[each] for each in found), start)
        if best is None or found_key < best:
            best, names = found_key, found
    return names


@pytest.mark.parametrize("seed", range(300))
def test_no_other_choice_would_be_better(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.randint(1, 4) for _ in range(chance.randint(1, 14))]
    place = Allocator(0, (sum(sizes) + chance.randint(0, 3)) * UNIT)
    items = fill(place, sizes)
    chance.shuffle(items)
    freed, kept = items[: len(items) // 4], items[len(items) // 4 :]
    for item in freed:
        place.free(item.region)
    kept = kept[: chance.randint(1, len(kept))]  # the others are somebody's
    gap = max(place.gap_after(start * UNIT) for start in range(place.num_bytes // UNIT)) // UNIT
    num_units = gap + chance.randint(1, 8)

    chosen = choose_victims(kept, place, num_units * UNIT - 5)

    assert {item.name for item in chosen} == best_choice(kept, place, num_units)
    for item in chosen:
        place.free(item.region)
    assert (place.allocate(num_units * UNIT) is not None) == bool(chosen)
    place.check()


def test_one_as_large_that_was_unused_longest_is_enough() -> None:
    place = Allocator(0, 8 * UNIT)
    items = fill(place, [2, 2, 2, 2])
    order = [items[2], items[0], items[3], items[1]]
    assert choose_victims(order, place, 2 * UNIT) == [items[2]]


def test_nothing_is_dropped_where_it_would_not_be_enough() -> None:
    place = Allocator(0, 8 * UNIT)
    items = fill(place, [2, 2, 2, 2])
    assert choose_victims([items[0], items[3], items[2]], place, 5 * UNIT) == []


class CountingAllocator(Allocator):
    """Counts how often somebody asked for a gap."""

    num_questions = 0

    def gap_before(self, offset: int) -> int:
        self.num_questions += 1
        return super().gap_before(offset)

    def gap_after(self, offset: int) -> int:
        self.num_questions += 1
        return super().gap_after(offset)


@pytest.mark.parametrize("num_units", [1, 64, 1000])
def test_each_of_many_items_is_looked_at_once_at_most(num_units: int) -> None:
    place = CountingAllocator(0, 4096 * UNIT)
    items = fill(place, [1] * 4096)
    random.Random(0).shuffle(items)
    chosen = choose_victims(items, place, num_units * UNIT)
    assert len(chosen) == num_units
    assert place.num_questions <= 2 * len(items)
    assert num_units > 1 or place.num_questions == 2
