"""Kept embeddings stay within their share, never move while pinned, and give way when needed."""

import asyncio
import random

import pytest

from gateway.encoding.embeddings import EmbeddingStore, Entry
from gateway.encoding.lease import Lease
from gateway.observe.metrics import Metrics
from tests.plans import make_plan
from workers.arena import Arena
from workers.messages import Region, TensorRef

UNIT = 64  # bytes


class Shelf:
    """A store over two arenas of 16 units each, of which it may keep 8."""

    def __init__(self, share: float = 0.5) -> None:
        self.arenas = [Arena(index, 16 * UNIT) for index in range(2)]
        self.store = EmbeddingStore(self.arenas, share, Metrics())

    def add(self, name: str, num_units: int = 1, owner: int = 0) -> Entry:
        """An entry with one pin."""
        region = self.store.take(owner, num_units * UNIT)
        assert region is not None
        entry = Entry(
            digest=name.encode(),
            plan=make_plan((num_units, 7)),
            lease=Lease(self.arenas[owner], region),
            tensor=TensorRef(region, "uint8", (1, num_units, UNIT)),
            identity=name.encode(),
            num_pins=1,
        )
        self.store.add(entry)
        return entry

    def keep(self, name: str, num_units: int = 1, owner: int = 0) -> None:
        """An entry that nobody needs any more."""
        self.store.unpin(self.add(name, num_units, owner))

    def held(self, names: str) -> str:
        return "".join(name for name in names if self.store.find(name.encode()))


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


def test_the_least_recently_used_go_first_when_the_share_is_full(shelf: Shelf) -> None:
    for name in "abcd":
        shelf.keep(name, 2)
    found = shelf.store.find(b"a")
    assert found is not None
    shelf.store.pin(found)
    shelf.store.unpin(found)  # used again: now the latest

    shelf.keep("e", 2)

    assert shelf.held("abcde") == "acde"
    assert shelf.store.idle_bytes(0) == 8 * UNIT
    assert shelf.arenas[0].num_bytes_used == 8 * UNIT


def test_pinned_embeddings_are_never_dropped_and_do_not_count(shelf: Shelf) -> None:
    pinned = shelf.add("p", 8)
    for name in "abcd":
        shelf.keep(name, 2)
    assert shelf.held("pabcd") == "pabcd"

    assert shelf.store.take(0, 9 * UNIT) is None  # even if all others went

    assert shelf.held("pabcd") == "pabcd"
    shelf.store.unpin(pinned)
    assert shelf.arenas[0].num_bytes_used == shelf.store.idle_bytes(0) == 8 * UNIT


def test_each_owner_has_its_own_share(shelf: Shelf) -> None:
    shelf.keep("a", 8, owner=0)
    shelf.keep("b", 8, owner=1)
    shelf.keep("c", 1, owner=1)
    assert shelf.held("abc") == "ac"


def test_what_is_larger_than_the_share_is_not_kept(shelf: Shelf) -> None:
    shelf.keep("a", 9)
    assert shelf.held("a") == ""
    assert shelf.arenas[0].num_bytes_used == 0


def test_a_share_of_nothing_keeps_nothing() -> None:
    shelf = Shelf(share=0)
    shelf.keep("a")
    assert shelf.held("a") == ""
    assert shelf.arenas[0].num_bytes_used == 0


def test_room_is_made_as_far_as_it_is_needed(shelf: Shelf) -> None:
    for name in "abcd":
        shelf.keep(name, 2)
    shelf.add("p", 8)
    assert shelf.held("abcd") == "abcd"

    assert shelf.store.take(0, 3 * UNIT) is not None

    assert shelf.held("abcd") == "cd"


def test_whoever_waits_gets_the_room_of_embeddings_as_they_are_let_go(shelf: Shelf) -> None:
    async def work() -> None:
        pinned = [shelf.add(name, 4) for name in "abcd"]
        waiter = asyncio.create_task(shelf.store.wait(0, 8 * UNIT))
        await asyncio.sleep(0)
        assert shelf.store.take(0, UNIT) is None  # nobody passes who waits
        shelf.store.unpin(pinned[3])
        await asyncio.sleep(0)
        assert not waiter.done()
        shelf.store.unpin(pinned[2])
        region = await asyncio.wait_for(waiter, 1)
        assert region.num_bytes == 8 * UNIT
        assert shelf.held("abcd") == "ab"

    asyncio.run(work())


@pytest.mark.parametrize("seed", range(5))
def test_random_use_keeps_the_books_straight(seed: int) -> None:
    """Pins, shares and arenas agree after every step, and all ends empty."""
    shelf, chance = Shelf(), random.Random(seed)
    pinned: list[Entry] = []
    for step in range(1500):
        owner = chance.randrange(2)
        entry = shelf.store.find(b"%d" % chance.randrange(max(0, step - 20), step + 1))
        if pinned and chance.random() < 0.5:
            shelf.store.unpin(pinned.pop(chance.randrange(len(pinned))))
        elif entry is not None:
            shelf.store.pin(entry)
            pinned.append(entry)
        elif (region := shelf.store.take(owner, chance.randrange(1, 6 * UNIT))) is not None:
            shelf.arenas[owner].free(region)
            if (room := shelf.store.take(owner, UNIT)) is not None:
                shelf.arenas[owner].free(room)
                pinned.append(shelf.add(str(step), 1, owner))
        for arena in shelf.arenas:
            arena.check()
            pins = {id(entry): entry for entry in pinned if entry.owner == arena.index}
            held = sum(entry.num_bytes for entry in pins.values())
            assert arena.num_bytes_used == held + shelf.store.idle_bytes(arena.index)
            assert shelf.store.idle_bytes(arena.index) <= 8 * UNIT
        assert shelf.store.num_pins == len(pinned)
    for entry in pinned:
        shelf.store.unpin(entry)
    assert shelf.store.num_pins == 0


class CountingArena(Arena):
    """Counts how often somebody looked for a gap."""

    num_looks = 0

    def allocate(self, num_bytes: int) -> Region | None:
        self.num_looks += 1
        return super().allocate(num_bytes)


def test_room_amid_thousands_of_kept_images_is_found_in_a_few_looks() -> None:
    """Each look goes through all gaps, in the event loop that serves everybody."""
    arena = CountingArena(0, 4096 * UNIT)
    shelf = Shelf(1.0)
    shelf.arenas = [arena]
    shelf.store = EmbeddingStore([arena], 1.0, Metrics())
    entries = [shelf.add(str(number)) for number in range(4096)]
    random.Random(0).shuffle(entries)  # so that the oldest lie apart
    for entry in entries:
        shelf.store.unpin(entry)
    arena.num_looks = 0

    assert shelf.store.take(0, 1000 * UNIT) is not None

    assert arena.num_looks <= 14
    arena.check()


def test_no_more_is_dropped_than_there_is_need_of_where_the_oldest_lie_together() -> None:
    shelf = Shelf(1.0)
    for name in "abcdefgh":
        shelf.keep(name, 2)
    assert shelf.store.take(0, 6 * UNIT) is not None
    assert shelf.held("abcdefgh") == "defgh"
