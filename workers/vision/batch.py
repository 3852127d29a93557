"""Which waiting images are encoded together; pure, no torch."""

from collections.abc import Sequence

# A device needs many rows to be busy. A CPU is so with one image, and each image of a batch waits
# for all of it, as does a language step: of 640 x 480 pixels (1564 patches) one took 153 ms alone,
# 152 ms in a batch of four and 177 ms in one of eight (bfloat16, one thread).
MAX_PATCHES = 16_384
MAX_PATCHES_ON_CPU = 2_048


def max_patches_on(device: str) -> int:
    """The limit of a batch where none is set; `device` is as torch spells it."""
    return MAX_PATCHES_ON_CPU if device == "cpu" else MAX_PATCHES


def passes_at_once(device: str, num_threads: int) -> int:
    """How many passes a batch has on a device, of whose threads each computes some by itself.

    Two for each: one thread gets on faster than another, which would else keep it waiting. Of 16
    requests with 640 x 480 pixels in flight two threads then answered 1.08 times as many.
    """
    return 2 * num_threads if device == "cpu" and num_threads > 1 else 1


def choose_batch(num_patches: Sequence[int], max_patches: int, num_passes: int = 1) -> int:
    """How many images from the front make the next batch, of so many passes side by side.

    First come, first served: a pass ends before the first image that would exceed
    `max_patches`, and an image that exceeds it alone goes alone.
    """
    size = 0
    for _ in range(num_passes):
        size += _choose_pass(num_patches[size:], max_patches)
    return size


def _choose_pass(num_patches: Sequence[int], max_patches: int) -> int:
    total = 0
    for index, patches in enumerate(num_patches):
        total += patches
        if index > 0 and total > max_patches:
            return index
    return len(num_patches)
