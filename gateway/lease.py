"""A reserved region with the number of those who still need it."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from workers.messages import Region
from workers.ranges import Allocator

Memory = TypeVar("Memory", bound=Allocator, covariant=True)


@dataclass(slots=True)
class Lease(Generic[Memory]):
    """Gives its region back when its last holder lets go. Owned by the event loop."""

    arena: Memory
    region: Region
    num_holders: int = 1

    @property
    def is_lost(self) -> bool:
        """Whether the memory went with the process that held it."""
        return self.arena.is_closed

    def hold(self) -> "Lease[Memory]":
        """Count one more holder."""
        self.num_holders += 1
        return self

    def release(self) -> None:
        """Let go once per hold; the last one frees the region."""
        self.num_holders -= 1
        if self.num_holders == 0:
            self.arena.free(self.region)
