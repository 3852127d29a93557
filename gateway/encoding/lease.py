"""Reserved regions and other holdings with the number of those who still need them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

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


class Holding(Protocol):
    """Something that is kept in its place until it is released, which is done once."""

    def release(self) -> None:
        """Let it go."""
        ...


@dataclass(slots=True)
class Share:
    """Holdings that several jobs need; released when the last of these lets go.

    Owned by the event loop.
    """

    holdings: Sequence[Holding]
    num_holders: int = 1

    def hold(self) -> "Share":
        """Count one more holder."""
        self.num_holders += 1
        return self

    def release(self) -> None:
        """Let go once per hold; the last one releases all."""
        self.num_holders -= 1
        if self.num_holders == 0:
            for holding in self.holdings:
                holding.release()
