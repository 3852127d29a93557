"""A reserved arena region with the number of those who still need it."""

from dataclasses import dataclass

from workers.arena import Arena
from workers.messages import Region


@dataclass(slots=True)
class Lease:
    """Gives its region back when its last holder lets go. Owned by the event loop."""

    arena: Arena
    region: Region
    num_holders: int = 1

    def hold(self) -> "Lease":
        """Count one more holder."""
        self.num_holders += 1
        return self

    def release(self) -> None:
        """Let go once per hold; the last one frees the region."""
        self.num_holders -= 1
        if self.num_holders == 0:
            self.arena.free(self.region)
