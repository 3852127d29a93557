"""What is kept in one memory in, what to drop of it for room in one piece out. Pure."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Protocol, TypeVar

from workers.messages import Region
from workers.ranges import Allocator, aligned


class Kept(Protocol):
    """Something that could be dropped."""

    @property
    def region(self) -> Region:
        """Where it lies."""
        ...


Item = TypeVar("Item", bound=Kept)


def choose_victims(kept: Iterable[Item], place: Allocator, num_bytes: int) -> list[Item]:
    """The least that has to go for so many bytes in one piece; nothing where that is not enough.

    The latest used of what goes has been unused as long as can be, and of all such choices this
    one drops the fewest bytes. So it takes as much time as items must be looked at, from the
    longest unused on, until some of them lie together and are large enough.

    Args:
        kept: items in `place`, the longest unused first.
        place: where there is no free piece of this size.
        num_bytes: of the piece.
    """
    needed = aligned(num_bytes)
    start_of: dict[int, int] = {}  # free or droppable stretches with an item, by their end
    end_of: dict[int, int] = {}
    seen: list[tuple[int, int, Item]] = []  # with where it begins and ends
    for item in kept:
        region = item.region
        start = region.offset
        end = start + aligned(region.num_bytes)
        seen.append((start, end, item))
        left, right = start_of.pop(start, None), end_of.pop(end, None)
        left = start - place.gap_before(start) if left is None else left
        right = end + place.gap_after(end) if right is None else right
        if right - left >= needed:
            stretch = sorted(each for each in seen if left <= each[0] < right)
            return _narrow(stretch, (left, right), stretch.index(seen[-1]), needed)
        start_of[right], end_of[left] = left, right
    return []


def _narrow(
    stretch: Sequence[tuple[int, int, Item]], limits: tuple[int, int], last: int, needed: int
) -> list[Item]:
    """The neighbours in a stretch that make enough room and are together the smallest.

    The one at `last` is among them in any case, for without it there is not enough room.
    """
    # With neighbours goes the free room on either side, as far as the next item or the limit.
    lefts = [limits[0], *(end for _, end, _ in stretch)]
    rights = [*(start for start, _, _ in stretch), limits[1]]
    sizes = [end - start for start, end, _ in stretch]
    best, least, stop, dropped = slice(0), inf, 0, 0
    for first in range(last + 1):
        while stop <= last or (stop < len(stretch) and rights[stop] - lefts[first] < needed):
            dropped += sizes[stop]
            stop += 1
        if rights[stop] - lefts[first] >= needed and dropped < least:
            best, least = slice(first, stop), dropped
        dropped -= sizes[first]
    return [item for _, _, item in stretch[best]]
