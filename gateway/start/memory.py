"""Tells the C library how this process uses memory; glibc heeds it, others need not."""

import asyncio
import ctypes
import sys
from collections.abc import Callable
from typing import Any, NoReturn

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
_LOOK_SECONDS = 5.0  # between two looks at whether nothing runs


def share_one_heap() -> None:
    """Have all threads allocate from one heap, which gives back what is free at its end.

    Each thread's own heap kept what a large body had once needed: after floods of bodies of 3 to
    15 MB the gateway held 0.9 GB, with one heap half of it. Left alone, glibc lets both limits
    grow with the largest piece that was ever freed, until 64 MiB are kept.
    """
    for name, value in (
        (_M_ARENA_MAX, 1),
        (_M_MMAP_THRESHOLD, _APART_BYTES),
        (_M_TRIM_THRESHOLD, MAX_IDLE_BYTES),
    ):
        _call("mallopt", name, value)


def give_back() -> None:
    """Let go of what lies free between what is held; some milliseconds after a flood."""
    _call("malloc_trim", MAX_IDLE_BYTES)


async def give_back_when(is_idle: Callable[[], bool]) -> NoReturn:
    """Give back again and again, as long as nobody waits for it."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        if is_idle():
            give_back()


def _call(name: str, *arguments: int) -> None:
    if sys.platform == "linux":
        function: Any = getattr(ctypes.CDLL(None), name, None)
        if function is not None:
            function(*arguments)
