"""Shared memory of one worker link: sizes in, regions out; the gateway alone allocates."""

import mmap
import os
import sys
import tempfile
from collections.abc import Sequence

from workers.messages import Region
from workers.ranges import Allocator, BadRegion


class Arena(Allocator):
    """The gateway's side.

    Pages cost memory from their first use on. The file has no name and is handed to workers by
    inheritance, so nothing is left behind however the processes end, and a restarted worker finds
    the bytes of its predecessor.
    """

    def __init__(self, index: int, num_bytes: int) -> None:
        super().__init__(index, num_bytes)
        self.file_number = _make_file(self.num_bytes)
        self._memory = memoryview(mmap.mmap(self.file_number, self.num_bytes))

    def view(self, region: Region) -> memoryview:
        """The region's bytes, writable.

        Raises:
            BadRegion: it lies outside this arena.
        """
        if region.arena != self.index or region.pool:
            raise BadRegion(f"{region} is of another arena than {self.index}")
        return _slice(self._memory, region)

    def close(self) -> None:
        """Let go of the file; the memory itself goes with its last view. Twice does nothing."""
        super().close()
        if self.file_number >= 0:
            os.close(self.file_number)
            self.file_number = -1


class Arenas:
    """A worker's side: the arenas of all links, by the index of the worker that each belongs to."""

    def __init__(self, file_numbers: Sequence[int]) -> None:
        self._memories = [_map(file_number) for file_number in file_numbers]

    def view(self, region: Region) -> memoryview:
        """The region's bytes, writable.

        Raises:
            BadRegion: it lies outside its arena, or there is no such arena.
        """
        if region.pool or not 0 <= region.arena < len(self._memories):
            raise BadRegion(f"{region}: there are {len(self._memories)} arenas")
        return _slice(self._memories[region.arena], region)


def _make_file(num_bytes: int) -> int:
    if sys.platform == "linux":
        file_number = os.memfd_create("fovea-arena", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            file_number = os.dup(file.fileno())
    os.truncate(file_number, num_bytes)
    return file_number


def _map(file_number: int) -> memoryview:
    memory = memoryview(mmap.mmap(file_number, 0))  # 0: the file's own size
    os.close(file_number)
    return memory


def _slice(memory: memoryview, region: Region) -> memoryview:
    end = region.offset + region.num_bytes
    if region.offset < 0 or region.num_bytes < 0 or end > len(memory):
        raise BadRegion(f"{region} lies outside the arena's {len(memory)} bytes")
    return memory[region.offset : end]
