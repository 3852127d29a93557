"""Tells the C library how this process uses memory; glibc heeds it, others need not."""

import ctypes
import sys

# glibc's names, from malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8
# What may lie free at the end of the heap. The buffers of an image of 1536x1024 just fit: where
# they do not, they go back to the system after each image, and to get them anew is a third of
# the time that decoding takes.
MAX_IDLE_BYTES = 16 << 20
# Larger pieces are the system's own, and go back at once. This is the most that glibc allows.
_APART_BYTES = 32 << 20


def share_one_heap() -> None:
    """Have all threads allocate from one heap that keeps little of what is free.

    Each thread's own heap kept what a large body had once needed: after floods of bodies of 3 to
    15 MB the gateway held 0.9 GB, with one heap half of it, and it gives that back. Left alone,
    glibc lets both limits grow with the largest piece that was ever freed, up to 64 MiB kept.
    """
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_MMAP_THRESHOLD, _APART_BYTES)
        mallopt(_M_TRIM_THRESHOLD, MAX_IDLE_BYTES)
