"""Ranges of one memory, taken and given back: sizes in, regions out; no byte is touched here."""

import asyncio
import bisect
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from workers.messages import Region

ALIGNMENT = 64  # bytes; a cache line, and enough for every dtype


class ArenaTooSmall(Exception):
    """The bytes asked for never fit, however long one waits; the message gives both numbers."""


class MemoryGone(Exception):
    """The memory went with the process that held it."""


class BadRegion(ValueError):
    """A region that lies outside its memory, or is freed without being taken."""


@dataclass(slots=True, eq=False)
class _Waiter:
    num_bytes: int
    future: asyncio.Future[Region]


@dataclass(slots=True)
class _Ranges:
    """Free ranges by offset: apart from each other, none touching the next."""

    starts: list[int] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)


class Allocator:
    """First fit at the lowest address, so that few pages are ever touched.

    Owned by the gateway's event loop, which alone allots memory that workers write to.
    """

    def __init__(self, index: int, num_bytes: int, pool: int = 0) -> None:
        """`index` and `pool` are what the regions carry, see `Region`."""
        self.index = index
        self.pool = pool
        self.num_bytes = num_bytes // ALIGNMENT * ALIGNMENT
        self.num_bytes_used = 0
        self.is_closed = False
        self._free = _Ranges([0], {0: self.num_bytes})
        self._taken: dict[int, Region] = {}
        self._waiting: deque[_Waiter] = deque()

    @property
    def num_bytes_free(self) -> int:
        """Bytes that nobody has taken, in one place or in many."""
        return self.num_bytes - self.num_bytes_used

    @property
    def is_awaited(self) -> bool:
        """Whether somebody stands in line for room."""
        return bool(self._waiting)

    def gap_before(self, offset: int) -> int:
        """Free bytes that end where something begins."""
        position = bisect.bisect_left(self._free.starts, offset)
        start = self._free.starts[position - 1] if position else -1
        return offset - start if start + self._free.sizes.get(start, 0) == offset else 0

    def gap_after(self, offset: int) -> int:
        """Free bytes that begin where something ends."""
        return self._free.sizes.get(offset, 0)

    def allocate(self, num_bytes: int) -> Region | None:
        """Take `num_bytes` if they are free and nobody waits for room."""
        return None if self._waiting or self.is_closed else self._take(num_bytes)

    async def reserve(self, num_bytes: int) -> Region:
        """Take `num_bytes`, waiting in line for room.

        Whoever needs several regions at once takes one and splits it: two callers that each hold
        one region and wait for a second could wait for each other for ever.

        Raises:
            ArenaTooSmall: they would not fit if all were free.
            MemoryGone: the memory is closed, before or while one waits.
        """
        if self.is_closed:
            raise MemoryGone("the memory is gone")
        if num_bytes > self.num_bytes:
            raise ArenaTooSmall(f"{num_bytes} bytes are needed; the limit is {self.num_bytes}")
        region = self.allocate(num_bytes)
        if region is not None:
            return region
        waiter = _Waiter(num_bytes, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            self._give_up(waiter)
            raise

    def split(self, region: Region, sizes: Sequence[int]) -> tuple[Region, ...]:
        """Cut a taken region into regions of these sizes, in order, each freed by itself.

        Raises:
            BadRegion: it is not taken, or the aligned sizes do not fill it.
        """
        ends = list(accumulate(map(aligned, sizes), initial=region.offset))
        if self._taken.get(region.offset) != region or ends[-1] != region.offset + aligned(
            region.num_bytes
        ):
            raise BadRegion(f"{region} cannot be cut into {len(sizes)} regions")
        parts = [self._region(start, size) for start, size in zip(ends, sizes, strict=False)]
        self._taken |= {part.offset: part for part in parts}
        return tuple(parts)

    def free(self, region: Region) -> None:
        """Give a region back.

        Raises:
            BadRegion: it is not taken, or was freed before.
        """
        if self._taken.get(region.offset) != region:
            raise BadRegion(f"{region} is not taken")
        self._release(region)
        self._serve()

    def check(self) -> None:
        """Assert that free and taken ranges tile the memory and that free ranges are merged."""
        taken = {start: aligned(region.num_bytes) for start, region in self._taken.items()}
        assert self._free.starts == sorted(self._free.sizes)
        assert self.num_bytes_used == sum(taken.values())
        end, end_is_free = 0, False
        for start, size in sorted([*taken.items(), *self._free.sizes.items()]):
            is_free = start in self._free.sizes
            assert start == end
            assert size > 0
            assert not (is_free and end_is_free)
            end, end_is_free = start + size, is_free
        assert end == self.num_bytes

    def close(self) -> None:
        """Give nothing any more: who waits for room is told so. What is taken can be freed."""
        self.is_closed = True
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.future.done():
                waiter.future.set_exception(MemoryGone("the memory is gone"))

    def _region(self, start: int, num_bytes: int) -> Region:
        return Region(self.index, start, num_bytes, self.pool)

    def _take(self, num_bytes: int) -> Region | None:
        size = aligned(num_bytes)
        free = self._free
        fitting = (p for p, start in enumerate(free.starts) if free.sizes[start] >= size)
        position = next(fitting, None)
        if position is None:
            return None
        start = free.starts[position]
        rest = free.sizes.pop(start) - size
        if rest:
            free.starts[position] = start + size
            free.sizes[start + size] = rest
        else:
            del free.starts[position]
        self.num_bytes_used += size
        region = self._taken[start] = self._region(start, num_bytes)
        return region

    def _release(self, region: Region) -> None:
        del self._taken[region.offset]
        start, size = region.offset, aligned(region.num_bytes)
        self.num_bytes_used -= size
        free = self._free
        position = bisect.bisect(free.starts, start)
        if position < len(free.starts) and free.starts[position] == start + size:
            size += free.sizes.pop(free.starts.pop(position))
        if position and free.starts[position - 1] + free.sizes[free.starts[position - 1]] == start:
            free.sizes[free.starts[position - 1]] += size
        else:
            free.starts.insert(position, start)
            free.sizes[start] = size

    def _serve(self) -> None:
        while self._waiting:
            waiter = self._waiting[0]
            if not waiter.future.done():
                region = self._take(waiter.num_bytes)
                if region is None:
                    return
                waiter.future.set_result(region)
            self._waiting.popleft()

    def _give_up(self, waiter: _Waiter) -> None:
        future = waiter.future
        if not future.cancelled() and future.exception() is None:
            self._release(future.result())  # served, and cancelled before it could look
        self._serve()  # whoever stood behind may fit


def aligned(num_bytes: int) -> int:
    """The bytes that a region of `num_bytes` takes up; at least one byte."""
    if num_bytes <= 0:
        raise ValueError(f"a region of {num_bytes} bytes")
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
