"""Whether images can be split among owners within a limit at all; by search, for small numbers."""

from collections.abc import Sequence

MAX_STEPS = 200_000


def can_split(costs: Sequence[float], num_owners: int, limit: float) -> bool | None:
    """Whether some split gives no owner more than `limit`; None if the search takes too long."""
    try:
        return _Search(sorted(costs, reverse=True), num_owners, limit).fits(0)
    except TimeoutError:
        return None


class _Search:
    """Largest first, into every owner with another load; cut where what is left has no room."""

    def __init__(self, costs: list[float], num_owners: int, limit: float) -> None:
        self._costs = costs
        self._limit = limit + 1e-9 * limit  # for sums that round
        self._loads = [0.0] * num_owners
        self._num_steps = 0

    def fits(self, index: int) -> bool:
        """Whether the images from `index` on have room beside those before."""
        if index == len(self._costs):
            return True
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            raise TimeoutError
        smallest = self._costs[-1]
        room = sum(self._limit - load for load in self._loads if load + smallest <= self._limit)
        if room < sum(self._costs[index:]):
            return False
        return any(self._fits_on(owner, index) for owner in self._different_owners(index))

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
