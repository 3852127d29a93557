"""Passes get as many threads as they are worth, and no thread changes another's number."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch import nn

from workers.families.crew import (
    LEAST_MULTIPLICATIONS,
    LEAST_NUMBERS,
    SHARE_ROWS,
    Crew,
    use_threads,
)
from workers.niceness import LAST

Result = TypeVar("Result")

NUM_THREADS = 5
SECONDS = 5.0


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Five threads here, and afterwards as many as before."""
    before = torch.get_num_threads()
    use_threads(NUM_THREADS)
    yield
    use_threads(before)


def crew(width: int = 300) -> Crew:
    return Crew(nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width)))


def elsewhere(function: Callable[[], Result]) -> Result:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def test_a_thread_keeps_its_number_whatever_others_set() -> None:
    torch.get_num_threads()
    may_look, has_looked = threading.Event(), threading.Event()

    def look() -> int:
        use_threads(3)
        has_looked.set()
        assert may_look.wait(SECONDS)
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(look)
        assert has_looked.wait(SECONDS)
        elsewhere(lambda: use_threads(1))
        may_look.set()
        assert other.result() == 3
    assert torch.get_num_threads() == NUM_THREADS


def test_a_new_thread_computes_with_its_own_number_from_its_first_operation() -> None:
    """Without asking first it would take what the last one set."""
    elsewhere(lambda: use_threads(1))

    def work() -> int:
        use_threads(4)
        (torch.ones(200, 200) @ torch.ones(200, 200)).exp()
        return torch.get_num_threads()

    assert elsewhere(work) == 4


@pytest.mark.parametrize(
    ("width", "num_rows", "expected"),
    [
        (300, 1, 1),
        (300, LEAST_MULTIPLICATIONS // 300**2, 1),
        (300, LEAST_MULTIPLICATIONS // 300**2 + 1, NUM_THREADS),
        (1 + int(LEAST_NUMBERS**0.5), 1, NUM_THREADS),
    ],
)
def test_a_small_pass_is_computed_by_one_thread(width: int, num_rows: int, expected: int) -> None:
    crew(width).call(num_rows)
    assert torch.get_num_threads() == expected


def test_results_come_in_order_and_each_share_has_its_part_of_the_threads() -> None:
    met = threading.Barrier(3)
    shares: list[list[int]] = []

    def compute(places: list[int]) -> list[str]:
        met.wait(SECONDS)  # all shares at once, or this breaks
        shares.append(places)
        return [f"{place} by {torch.get_num_threads()}" for place in places]

    use_threads(7)
    found = crew().share_out([40, 10, 30], compute)
    assert found == ["0 by 2", "1 by 2", "2 by 2"]
    assert sorted(shares) == [[0], [1], [2]]


def test_shares_are_about_equal() -> None:
    rows = [5, 90, 20, 70, 10, 60, 40, 5]
    shares: list[list[int]] = []

    def compute(places: list[int]) -> list[int]:
        shares.append(places)
        return places

    use_threads(3)
    assert crew().share_out(rows, compute) == list(range(len(rows)))
    assert sorted(place for share in shares for place in share) == list(range(len(rows)))
    assert [sum(rows[place] for place in share) for share in shares] == pytest.approx([100] * 3, 10)


def test_many_rows_are_more_passes_than_threads() -> None:
    shares: list[list[int]] = []

    def compute(places: list[int]) -> list[int]:
        shares.append(places)
        return places

    use_threads(2)
    rows = [SHARE_ROWS] * 5
    assert crew().share_out(rows, compute) == list(range(5))
    assert sorted(shares) == [[0], [1], [2], [3], [4]]


def test_the_first_thread_goes_on_and_the_others_come_last() -> None:
    met = threading.Barrier(3)

    def niceness(places: list[int]) -> list[int]:
        met.wait(SECONDS)
        return [os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) for _ in places]

    use_threads(3)
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    assert sorted(crew().share_out([9, 8, 7], niceness)) == [own, LAST, LAST]


@pytest.mark.parametrize(("num_threads", "rows"), [(1, [900, 900]), (NUM_THREADS, [900])])
def test_what_cannot_be_shared_is_computed_by_the_caller(num_threads: int, rows: list[int]) -> None:
    use_threads(num_threads)
    found = crew().share_out(rows, lambda places: [threading.get_ident() for _ in places])
    assert set(found) == {threading.get_ident()}
    assert torch.get_num_threads() == num_threads


def test_a_fault_in_one_share_is_the_callers() -> None:
    def compute(places: list[int]) -> list[int]:
        if 1 in places:
            raise RuntimeError("share 1")
        return places

    with pytest.raises(RuntimeError, match="share 1"):
        crew().share_out([9, 8, 7], compute)


def test_a_fault_is_told_only_once_no_share_computes_any_more() -> None:
    """Who hears of it may compute again at once, with the memory that the batch has had."""
    has_failed = threading.Event()
    ended: list[int] = []

    def compute(places: list[int]) -> list[int]:
        if 0 in places:
            has_failed.set()
            raise RuntimeError("share 0")
        assert has_failed.wait(SECONDS)
        time.sleep(0.05)  # for the caller, who would be told meanwhile
        ended.extend(places)
        return places

    with pytest.raises(RuntimeError, match="share 0"):
        crew().share_out([9, 8, 7], compute)
    assert sorted(ended) == [1, 2]
