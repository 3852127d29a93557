"""How many threads compute on a CPU, and what each of them does."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import torch
from torch import nn

from workers.niceness import LAST, give_way

Result = TypeVar("Result")

# A thread that joins in costs about 0.1 ms a product, because threads sleep between products.
# Below these a product takes less than twice that: a step of one row through a model of 9.5
# million parameters took 3.9 ms with two threads, and 2.1 with one.
LEAST_NUMBERS = 1_500_000  # of a weight, however few rows: it has to be read
LEAST_MULTIPLICATIONS = 30_000_000
SHARE_ROWS = 1024  # a pass of so many is as quick for each row as one of more


class Crew:
    """The threads for the passes of one model. On another device than a CPU it does nothing."""

    def __init__(self, model: nn.Module) -> None:
        """Look at a loaded model's products; the crew is as many threads as torch has here."""
        sizes = [each.weight.numel() for each in model.modules() if isinstance(each, nn.Linear)]
        self._mean_size = sum(sizes) // max(1, len(sizes))
        self._num_threads = torch.get_num_threads()
        if next(model.parameters()).device.type != "cpu":
            self._num_threads = 1
        self._pool = ThreadPoolExecutor(
            self._num_threads, "crew", _stand_back, (itertools.count(),)
        )

    def call(self, num_rows: int) -> None:
        """Let the calling thread compute a pass of so many rows with all of the crew, or alone."""
        if self._num_threads > 1:
            use_threads(self._num_threads if self._is_worth_all(num_rows) else 1)

    def share_out(
        self, num_rows: Sequence[int], compute: Callable[[list[int]], list[Result]]
    ) -> list[Result]:
        """Compute items that need nothing of each other, side by side where there are threads.

        A pass by itself keeps two threads busy for three quarters of its time; two passes at once
        keep both busy, and wait for each other only at the end. There are more passes than
        threads where they are large enough, so that a thread that gets on faster does more. When
        this returns or raises, none of them computes any more; of several faults the first share's
        is raised.

        Args:
            num_rows: of each item.
            compute: a pass over the items of some indices, in any thread; a result for each.

        Returns:
            a result for each item, in order
        """
        num_shares = min(len(num_rows), max(self._num_threads, sum(num_rows) // SHARE_ROWS))
        if self._num_threads < 2 or num_shares < 2:
            self.call(sum(num_rows))
            return compute(list(range(len(num_rows))))
        shares = _even_shares(num_rows, num_shares)
        each_has = max(1, self._num_threads // num_shares)
        passes = [self._pool.submit(_compute_with, each_has, compute, share) for share in shares]
        wait(passes)  # all of them, else a fault would be told while others still take memory
        found: dict[int, Result] = {}
        for share, each in zip(shares, passes, strict=True):
            found.update(zip(share, each.result(), strict=True))
        return [found[index] for index in range(len(num_rows))]

    def _is_worth_all(self, num_rows: int) -> bool:
        multiplications = num_rows * self._mean_size
        return self._mean_size >= LEAST_NUMBERS or multiplications >= LEAST_MULTIPLICATIONS


def use_threads(number: int) -> None:
    """Let the calling thread compute with so many threads; others keep the number they have.

    torch holds a number for each thread. But one that has never asked for its own takes what any
    other thread set last, at its first computation; so it asks first.
    """
    torch.get_num_threads()
    torch.set_num_threads(number)


def _stand_back(ranks: Iterator[int]) -> None:
    """Have a thread of a crew, but for the first, take only what all others leave of the cores.

    With two cores full of tower passes, a short text under a flood of images waited 2.5 times as
    long as alone, and 1.6 times with one. The first goes on, so that images are not starved.
    """
    if next(ranks):
        give_way(LAST)


def _compute_with(
    num_threads: int, compute: Callable[[list[int]], list[Result]], share: list[int]
) -> list[Result]:
    use_threads(num_threads)
    return compute(share)


def _even_shares(num_rows: Sequence[int], num_shares: int) -> list[list[int]]:
    """Indices by share: the largest item first, each to the share that has least."""
    shares: list[list[int]] = [[] for _ in range(num_shares)]
    loads = [0] * num_shares
    for index in sorted(range(len(num_rows)), key=lambda at: -num_rows[at]):
        least = loads.index(min(loads))
        shares[least].append(index)
        loads[least] += num_rows[index]
    return shares
