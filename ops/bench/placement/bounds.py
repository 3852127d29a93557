"""What no split of images among owners takes less than."""

from collections.abc import Sequence


def lower_bound(costs: Sequence[float], num_owners: int) -> float:
    """No split takes less than the mean load, or than the largest image."""
    return max(sum(costs) / num_owners, max(costs))


def pigeonhole_bound(costs: Sequence[float], num_owners: int) -> float:
    """A higher one: of any k owners' worth of images and one more, some owner has k + 1.

    Nine equal images on eight owners take two images' time, where the mean is 1.125.
    """
    falling = sorted(costs, reverse=True)
    bound = lower_bound(costs, num_owners)
    for share in range(1, (len(falling) - 1) // num_owners + 1):
        last = share * num_owners
        bound = max(bound, sum(falling[last - share : last + 1]))
    return bound
