"""Feature pools: memory of an owner's device that other processes map; two kinds make them.

`workers.cuda_pool` is the one for CUDA; the tests have one of shared memory, so that all but the
driver's calls runs without a GPU.
"""

import secrets
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from workers.messages import FeaturePool, Region
from workers.ranges import BadRegion

_NUMBER_BITS = 48


class PoolError(Exception):
    """Memory cannot be had, exported or mapped; the message says why."""


@dataclass(frozen=True, slots=True)
class OwnPool:
    """A pool in the process of the owner that made it."""

    number: int
    content: Tensor  # [bytes], uint8, on the owner's device
    handle: bytes  # empty where no other process maps it

    def view(self, region: Region) -> Tensor:
        """The region's bytes, writable.

        Raises:
            BadRegion: it lies outside this pool.
        """
        if region.pool != self.number:
            raise BadRegion(f"{region} is of another pool than {self.number}")
        check_inside(region, len(self.content))
        return self.content[region.offset : region.offset + region.num_bytes]

    def describe(self) -> FeaturePool:
        """What the gateway and other workers need to know of it."""
        return FeaturePool(number=self.number, num_bytes=len(self.content), handle=self.handle)


class MappedPool(Protocol):
    """A pool of another process."""

    def copy(self, offset: int, target: Tensor) -> None:
        """Copy bytes from an offset on into all of `target`, contiguous, on the device.

        The copy is queued on the device's current stream.
        """
        ...

    def close(self) -> None:
        """Let the memory go; no copy may be under way."""
        ...


class Pools(Protocol):
    """A kind of device memory, for one device."""

    def make(self, num_bytes: int) -> Tensor:
        """Take memory for good, uint8 [num_bytes].

        Raises:
            PoolError: there is not enough.
        """
        ...

    def export(self, content: Tensor) -> bytes:
        """The handle by which other processes map what `make` gave.

        Raises:
            PoolError: the system does not allow it.
        """
        ...

    def open(self, handle: bytes, num_bytes: int) -> MappedPool:
        """Map memory of another process.

        Raises:
            PoolError: the system does not allow it, or that process is gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Home:
    """What a worker's own process holds, which it reads without a copy."""

    index: int  # of its arena
    pool: OwnPool | None  # where its owner writes
    pools: Pools | None  # to map those of others; None: there are none


ELSEWHERE = Home(index=-1, pool=None, pools=None)  # of a process that holds nothing


def make_pool(pools: Pools, num_bytes: int, is_shared: bool) -> OwnPool:
    """Make a pool, and export it once if other processes will map it.

    Raises:
        PoolError: see `Pools`.
    """
    content = pools.make(num_bytes)
    handle = pools.export(content) if is_shared else b""
    return OwnPool(1 + secrets.randbits(_NUMBER_BITS), content, handle)


def check_inside(region: Region, num_bytes: int) -> None:
    """Raise BadRegion if a region lies outside a pool of `num_bytes`."""
    if region.offset < 0 or region.num_bytes < 0 or region.offset + region.num_bytes > num_bytes:
        raise BadRegion(f"{region} lies outside the pool's {num_bytes} bytes")
