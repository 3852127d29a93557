"""Batches are taken from the front and stay within the limit."""

import random

from workers.vision.batch import choose_batch, max_patches_on, passes_at_once


def test_batch_ends_before_the_limit_is_exceeded() -> None:
    assert choose_batch([40, 60, 1], max_patches=100) == 2


def test_image_over_the_limit_goes_alone() -> None:
    assert choose_batch([500, 1], max_patches=100) == 1


def test_passes_side_by_side_are_bounded_each_by_itself() -> None:
    assert choose_batch([40, 60, 1, 99, 1], max_patches=100, num_passes=2) == 4
    assert choose_batch([500, 60, 50], max_patches=100, num_passes=2) == 2
    assert choose_batch([500, 500, 500], max_patches=100, num_passes=2) == 2
    assert choose_batch([3], max_patches=100, num_passes=4) == 1


def test_nothing_waiting_makes_no_batch() -> None:
    assert choose_batch([], max_patches=100) == 0


def test_every_batch_is_as_long_as_the_limit_allows() -> None:
    rng = random.Random(7)
    for _ in range(500):
        waiting = [rng.randint(1, 80) for _ in range(rng.randint(1, 12))]

        size = choose_batch(waiting, max_patches=100)

        assert size >= 1
        assert size == 1 or sum(waiting[:size]) <= 100
        assert size == len(waiting) or sum(waiting[: size + 1]) > 100


def test_a_cpu_gets_smaller_batches_than_a_gpu() -> None:
    assert max_patches_on("cpu") == 2048
    assert max_patches_on("cuda:1") == max_patches_on("cuda") == 16384


def test_threads_that_get_on_faster_find_more_to_do() -> None:
    assert passes_at_once("cpu", 1) == 1
    assert passes_at_once("cpu", 3) == 6
    assert passes_at_once("cuda:0", 3) == 1
