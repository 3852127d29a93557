"""The block pool over random operations, beside a plain account of who holds what."""

import random

import pytest

from workers.language.blocks import BlockPool

BLOCK_TOKENS = 4


def name_all(pool: BlockPool, block_ids: list[int], first_key: int = 0) -> None:
    for index, block_id in enumerate(block_ids, start=first_key):
        pool.name(block_id, key_of(index))


def key_of(number: int) -> bytes:
    return number.to_bytes(16, "little")


def kept(pool: BlockPool, num_keys: int) -> list[int]:
    """Numbers of the keys whose blocks can be found."""
    return [number for number in range(num_keys) if pool.find([key_of(number)])]


def _random_run(seed: int) -> None:
    """Holders take, share, name and give back at random; the pool agrees with a plain count."""
    chance = random.Random(seed)
    num_blocks = chance.randint(1, 37)
    pool = BlockPool(num_blocks, BLOCK_TOKENS)
    holders: list[list[int]] = []
    content: dict[int, int] = {}  # what each block was named
    for _ in range(600):
        match chance.choice(["take", "share", "name", "give back"]):
            case "take" if pool.num_free:
                taken = pool.take(chance.randint(1, pool.num_free))
                assert not set(taken) & {each for holder in holders for each in holder}
                for block_id in taken:
                    content.pop(block_id, None)
                holders.append(taken)
            case "share":
                first = chance.randrange(12)
                keys = [key_of(first + index) for index in range(3)]
                found = pool.find(keys)
                assert [content[each] for each in found] == [first, first + 1, first + 2][
                    : len(found)
                ]
                before = pool.num_free
                expected = before - pool.num_kept_among(found)
                pool.share(found)
                assert pool.num_free == expected
                holders.append(found)
            case "name" if holders:
                for block_id in chance.choice(holders)[:2]:
                    number = chance.randrange(14)
                    if block_id not in content and not pool.find([key_of(number)]):
                        content[block_id] = number
                        pool.name(block_id, key_of(number))
            case "give back" if holders:
                holder = holders.pop(chance.randrange(len(holders)))
                unsure = pool.give_back(holder, chance.randint(0, len(holder)))
                for block_id in unsure:
                    assert not any(block_id in each for each in holders)
                    content.pop(block_id, None)
        pool.check(holders)
        held = {block_id for holder in holders for block_id in holder}
        assert pool.num_held_tokens == BLOCK_TOKENS * len(held)
        assert pool.num_free == num_blocks - len(held)
        assert pool.num_kept_tokens <= BLOCK_TOKENS * pool.num_free


def test_every_block_has_one_state_and_its_holders_after_random_operations() -> None:
    for seed in range(12):
        _random_run(seed)


@pytest.mark.parametrize(
    ("num_held", "num_tokens", "missing"), [(0, 0, 0), (0, 1, 1), (0, 4, 1), (1, 5, 1), (3, 8, 0)]
)
def test_missing_blocks_hold_the_last_token(num_held: int, num_tokens: int, missing: int) -> None:
    pool = BlockPool(num_blocks=8, block_tokens=BLOCK_TOKENS)
    assert pool.num_missing(list(range(num_held)), num_tokens) == missing


def test_a_named_block_is_found_while_it_is_held_and_after() -> None:
    pool = BlockPool(num_blocks=4, block_tokens=BLOCK_TOKENS)
    taken = pool.take(3)
    name_all(pool, taken[:2])
    assert pool.find([key_of(0), key_of(1), key_of(2)]) == taken[:2]
    pool.share(taken[:2])
    assert pool.give_back(taken, num_sure=3) == []
    assert pool.num_held_tokens == 2 * BLOCK_TOKENS
    pool.give_back(taken[:2], num_sure=0)
    assert pool.num_held_tokens == 0
    assert pool.num_kept_tokens == 2 * BLOCK_TOKENS
    assert pool.find([key_of(0), key_of(1)]) == taken[:2]
    pool.check([])


def test_a_search_ends_at_the_first_block_that_is_not_known() -> None:
    pool = BlockPool(num_blocks=4, block_tokens=BLOCK_TOKENS)
    taken = pool.take(3)
    name_all(pool, taken)
    assert pool.find([key_of(0), key_of(9), key_of(2)]) == taken[:1]


def test_the_longest_unused_prompt_goes_first_and_its_end_before_its_beginning() -> None:
    pool = BlockPool(num_blocks=6, block_tokens=BLOCK_TOKENS)
    old, new = pool.take(3), pool.take(3)
    name_all(pool, old)
    name_all(pool, new, first_key=3)
    pool.give_back(old, num_sure=3)
    pool.give_back(new, num_sure=3)
    orders = []
    for _ in range(4):
        pool.take(1)
        orders.append(kept(pool, 6))
    assert orders == [[0, 1, 3, 4, 5], [0, 3, 4, 5], [3, 4, 5], [3, 4]]


def test_use_makes_a_prompt_young_again() -> None:
    pool = BlockPool(num_blocks=4, block_tokens=BLOCK_TOKENS)
    old, new = pool.take(2), pool.take(2)
    name_all(pool, old)
    name_all(pool, new, first_key=2)
    pool.give_back(old, num_sure=2)
    pool.give_back(new, num_sure=2)
    pool.share(old)
    pool.give_back(old, num_sure=0)
    pool.take(2)
    assert kept(pool, 4) == [0, 1]


def test_empty_blocks_are_taken_before_kept_ones() -> None:
    pool = BlockPool(num_blocks=4, block_tokens=BLOCK_TOKENS)
    taken = pool.take(2)
    name_all(pool, taken)
    pool.give_back(taken, num_sure=2)
    assert not set(pool.take(2)) & set(taken)
    assert kept(pool, 2) == [0, 1]


def test_a_block_that_may_hold_nan_is_not_kept() -> None:
    pool = BlockPool(num_blocks=4, block_tokens=BLOCK_TOKENS)
    taken = pool.take(3)
    name_all(pool, taken)
    assert pool.give_back(taken, num_sure=1) == [taken[2], taken[1]]
    assert kept(pool, 3) == [0]


def test_the_content_is_sure_once_any_holder_saw_it() -> None:
    pool = BlockPool(num_blocks=2, block_tokens=BLOCK_TOKENS)
    taken = pool.take(1)
    name_all(pool, taken)
    pool.share(taken)
    pool.give_back(taken, num_sure=1)
    assert pool.give_back(taken, num_sure=0) == []
    assert kept(pool, 1) == [0]


def test_a_block_taken_anew_has_to_be_seen_again() -> None:
    pool = BlockPool(num_blocks=1, block_tokens=BLOCK_TOKENS)
    taken = pool.take(1)
    pool.give_back(taken, num_sure=1)
    assert pool.give_back(pool.take(1), num_sure=0) == taken


def test_of_two_blocks_with_the_same_content_one_is_kept() -> None:
    pool = BlockPool(num_blocks=2, block_tokens=BLOCK_TOKENS)
    first, second = pool.take(1), pool.take(1)
    name_all(pool, first)
    name_all(pool, second)
    pool.give_back(second, num_sure=1)
    assert pool.find([key_of(0)]) == first
    pool.give_back(first, num_sure=1)
    assert pool.num_kept_tokens == BLOCK_TOKENS
    pool.check([])


def test_double_return_is_noticed() -> None:
    pool = BlockPool(num_blocks=2, block_tokens=BLOCK_TOKENS)
    taken = pool.take(1)
    pool.give_back(taken, num_sure=0)
    with pytest.raises(AssertionError, match="free already"):
        pool.give_back(taken, num_sure=0)


def test_check_notices_a_lost_block() -> None:
    pool = BlockPool(num_blocks=3, block_tokens=BLOCK_TOKENS)
    taken = pool.take(2)
    with pytest.raises(AssertionError, match="not as many as counted"):
        pool.check([taken[:1]])


def test_check_notices_a_holder_that_was_not_counted() -> None:
    pool = BlockPool(num_blocks=3, block_tokens=BLOCK_TOKENS)
    taken = pool.take(2)
    with pytest.raises(AssertionError, match="not as many as counted"):
        pool.check([taken, taken[:1]])


def test_check_notices_a_sequence_that_holds_a_block_twice() -> None:
    pool = BlockPool(num_blocks=3, block_tokens=BLOCK_TOKENS)
    taken = pool.take(1)
    with pytest.raises(AssertionError, match="twice"):
        pool.check([taken + taken])
