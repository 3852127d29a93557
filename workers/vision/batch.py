"""Which waiting images are encoded together; pure, no torch."""

from collections.abc import Sequence


def choose_batch(num_patches: Sequence[int], max_patches: int) -> int:
    """How many images from the front make the next batch.

    First come, first served: a batch ends before the first image that would exceed
    `max_patches`, and an image that exceeds it alone goes alone.
    """
    total = 0
    for index, patches in enumerate(num_patches):
        total += patches
        if index > 0 and total > max_patches:
            return index
    return len(num_patches)
