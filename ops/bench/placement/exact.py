"""Whether images can be split among owners within a limit at all; by search, for small numbers."""

from collections.abc import Sequence

from ops.bench.placement.bounds import pigeonhole_bound

MAX_STEPS = 200_000  # a second or so
_ROUNDING = 1e-9  # of sums, as a share


def can_split(costs: Sequence[float], num_owners: int, limit: float) -> bool | None:
    """Whether some split gives no owner more than `limit`; None if the search takes too long."""
    if pigeonhole_bound(costs, num_owners) > limit + _ROUNDING * limit:
        return False
    try:
        return _Search(sorted(costs, reverse=True), num_owners, limit).fits(0)
    except TimeoutError:
        return None


class _Search:
    """Largest first, into every owner with another load; cut where what is left has no room.

    What was seen not to fit beside some loads is not tried again, whichever owners have them.
    """

    def __init__(self, costs: list[float], num_owners: int, limit: float) -> None:
        self._costs = costs
        self._limit = limit + _ROUNDING * limit
        self._loads = [0.0] * num_owners
        self._failed: set[tuple[int, tuple[float, ...]]] = set()  # with the sorted loads
        self._num_steps = 0

    def fits(self, index: int) -> bool:
        """Whether the images from `index` on have room beside those before."""
        if index == len(self._costs):
            return True
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            raise TimeoutError
        state = (index, tuple(sorted(self._loads)))
        if state in self._failed or not self._has_room(index):
            return False
        if any(self._fits_on(owner, index) for owner in self._different_owners(index)):
            return True
        self._failed.add(state)
        return False

    def _has_room(self, index: int) -> bool:
        smallest = self._costs[-1]
        room = sum(self._limit - load for load in self._loads if load + smallest <= self._limit)
        return room >= sum(self._costs[index:])

    def _different_owners(self, index: int) -> list[int]:
        by_load = {load: owner for owner, load in enumerate(self._loads)}
        most = self._limit - self._costs[index]
        return [owner for load, owner in by_load.items() if load <= most]

    def _fits_on(self, owner: int, index: int) -> bool:
        before = self._loads[owner]
        self._loads[owner] = before + self._costs[index]
        found = self.fits(index + 1)
        self._loads[owner] = before
        return found
