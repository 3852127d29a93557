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


class Account:
    """A pool, who holds what, and what each block was named."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.pool = BlockPool(self.chance.randint(1, 37), BLOCK_TOKENS)
        self.holders: list[list[int]] = []
        self.content: dict[int, int] = {}

    @property
    def held(self) -> set[int]:
        return {block_id for holder in self.holders for block_id in holder}

    def take(self) -> None:
        taken = self.pool.take(self.chance.randint(0, self.pool.num_free))
        assert not self.held & set(taken)
        for block_id in taken:
            self.content.pop(block_id, None)
        self.holders.append(taken)

    def share(self) -> None:
        first = self.chance.randrange(12)
        found = self.pool.find([key_of(first + index) for index in range(3)])
        assert [self.content[each] for each in found] == list(range(first, first + len(found)))
        num_free = self.pool.num_free - self.pool.num_kept_among(found)
        self.pool.share(found)
        assert self.pool.num_free == num_free
        self.holders.append(found)

    def name(self) -> None:
        for block_id in self.chance.choice(self.holders or [[]])[:2]:
            number = self.chance.randrange(14)
            if block_id not in self.content and not self.pool.find([key_of(number)]):
                self.content[block_id] = number
            self.pool.name(block_id, key_of(number))

    def give_back(self) -> None:
        if not self.holders:
            return
        holder = self.holders.pop(self.chance.randrange(len(self.holders)))
        unsure = self.pool.give_back(holder, self.chance.randint(0, len(holder)))
        assert not self.held & set(unsure)
        for block_id in unsure:
            self.content.pop(block_id, None)

    def check(self) -> None:
        self.pool.check(self.holders)
        assert self.pool.num_held_tokens == BLOCK_TOKENS * len(self.held)
        assert self.pool.num_free == self.pool.num_blocks - len(self.held)
        assert self.pool.num_kept_tokens <= BLOCK_TOKENS * self.pool.num_free
        for block_id in self.held & self.content.keys():
            assert self.pool.find([key_of(self.content[block_id])]) == [block_id]


def _random_run(seed: int) -> None:
    account = Account(seed)
    moves = (account.take, account.share, account.name, account.give_back)
    for _ in range(100):
        account.chance.choice(moves)()
        account.check()


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
