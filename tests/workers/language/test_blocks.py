"""The block pool over random operations."""

import random

import pytest

from workers.language.blocks import BlockPool


def test_every_block_is_free_or_held_once_after_random_operations() -> None:
    chance = random.Random(0)
    pool = BlockPool(num_blocks=37, block_tokens=4)
    holders: list[list[int]] = []
    for _ in range(2000):
        if chance.random() < 0.5 and pool.num_free:
            holders.append(pool.take(chance.randint(0, pool.num_free)))
        elif holders:
            pool.give_back(holders.pop(chance.randrange(len(holders))))
        pool.check(holders)
        held = [block for holder in holders for block in holder]
        assert len(set(held)) == len(held) == 37 - pool.num_free
        assert pool.num_taken_tokens == 4 * len(held)


@pytest.mark.parametrize(
    ("num_held", "num_tokens", "missing"), [(0, 0, 0), (0, 1, 1), (0, 4, 1), (1, 5, 1), (3, 8, 0)]
)
def test_missing_blocks_hold_the_last_token(num_held: int, num_tokens: int, missing: int) -> None:
    pool = BlockPool(num_blocks=8, block_tokens=4)
    assert pool.num_missing(list(range(num_held)), num_tokens) == missing


def test_double_return_is_noticed() -> None:
    pool = BlockPool(num_blocks=2, block_tokens=4)
    taken = pool.take(1)
    pool.give_back(taken)
    with pytest.raises(AssertionError, match="free already"):
        pool.give_back(taken)


def test_check_notices_a_lost_block() -> None:
    pool = BlockPool(num_blocks=3, block_tokens=4)
    taken = pool.take(2)
    with pytest.raises(AssertionError, match="no holder"):
        pool.check([taken[:1]])


def test_check_notices_a_shared_block() -> None:
    pool = BlockPool(num_blocks=3, block_tokens=4)
    taken = pool.take(2)
    with pytest.raises(AssertionError, match="two holders"):
        pool.check([taken, taken[:1]])
