"""Sharing as plain arithmetic: a made-up KV cache whose slots remember what was written to them."""

import random
from dataclasses import dataclass, field

import pytest

from tests.workers.language.test_scheduler import check_step, make_sequence
from workers.language.blocks import BlockPool
from workers.language.prefix import BlockKeys
from workers.language.scheduler import Scheduler, Slice, Step
from workers.language.sequence import Sequence

GARBAGE = (-1,)  # left behind by a step that failed
Content = tuple[int, ...]  # the tokens up to a slot's own, on all of which it depends


@dataclass
class World:
    """A scheduler, and what its steps would leave in the slots of the blocks."""

    block_tokens: int
    num_blocks: int
    max_step_tokens: int
    max_step_sequences: int
    max_anchored_blocks: int = 0
    slots: dict[int, Content] = field(default_factory=dict)
    num_computed: int = 0

    def __post_init__(self) -> None:
        self.pool = BlockPool(self.num_blocks, self.block_tokens)
        self.scheduler = Scheduler(
            self.pool, self.max_step_tokens, self.max_step_sequences, self.max_anchored_blocks
        )

    def add(self, name: str, token_ids: list[int], max_tokens: int, salt: bytes = b"") -> Sequence:
        """Add a sequence; half of what is known is anchored, if there may be anchors."""
        sequence = make_sequence(name, len(token_ids), max_tokens)
        sequence.token_ids = list(token_ids)
        sequence.keys = BlockKeys(b"", salt, (), self.block_tokens)
        known = self.scheduler.num_anchorable_tokens(sequence)
        self.scheduler.add(sequence, max(0, known - known // 2))
        return sequence

    def pick(self) -> Step | None:
        """The next step, after its dirty blocks have been wiped."""
        step = self.scheduler.pick()
        self.scheduler.check()
        for block_id in step.dirty_blocks if step else ():
            for slot in range(block_id * self.block_tokens, (block_id + 1) * self.block_tokens):
                self.slots.pop(slot, None)
        return step

    def compute(self, step: Step) -> list[Sequence]:
        """Write all slots, then see that each sequence reads its own beginning; who ended."""
        for piece in step.slices:
            self.num_computed += piece.length
            for index in range(piece.start, piece.end):
                slot = self._slot(piece, index)
                self.slots[slot] = tuple(piece.sequence.token_ids[: index + 1])
        for piece in step.slices:
            ids = piece.sequence.token_ids
            for index in range(piece.end):
                assert self.slots[self._slot(piece, index)] == tuple(ids[: index + 1])
            for index in range(piece.end, len(piece.sequence.block_ids) * self.block_tokens):
                assert self.slots.get(self._slot(piece, index)) != GARBAGE
        ended = []
        for piece in step.slices:
            piece.sequence.num_computed_tokens = piece.end
            if piece.is_last and piece.sequence.accept(ids_sum(piece.sequence)):
                self.scheduler.remove(piece.sequence, is_finite=True)
                ended.append(piece.sequence)
        return ended

    def fail(self, step: Step) -> list[Sequence]:
        """Leave garbage where the step should have written; its sequences end."""
        for piece in step.slices:
            for index in range(piece.start, piece.end):
                self.slots[self._slot(piece, index)] = GARBAGE
        for piece in step.slices:
            self.scheduler.remove(piece.sequence, is_finite=False)
        return [piece.sequence for piece in step.slices]

    def drain(self) -> None:
        while (step := self.pick()) is not None:
            self.compute(step)
        self.scheduler.check()

    def _slot(self, piece: Slice, index: int) -> int:
        block_id = piece.sequence.block_ids[index // self.block_tokens]
        return block_id * self.block_tokens + index % self.block_tokens


def ids_sum(sequence: Sequence) -> int:
    """Equal beginnings are answered equally."""
    return sum(sequence.token_ids) % 3


def _random_run(seed: int) -> tuple[int, int]:
    """Tokens that were not computed, and how often a waiting sequence was seen with anchors."""
    chance = random.Random(seed)
    size, num_blocks = chance.randint(1, 6), chance.randint(4, 40)
    anchors = chance.randint(0, num_blocks // 2)
    room = (num_blocks - anchors) * size
    world = World(size, num_blocks, chance.randint(1, 60), chance.randint(1, 9), anchors)
    todo: dict[str, Sequence] = {}
    num_cached = num_waiting_anchors = 0
    for count in range(500):
        if count < 400 and chance.random() < 0.4:
            ids = [0] * chance.randint(0, room // 2) + [1] * chance.randint(0, room // 4) + [2]
            name, ids = str(count), ids[: room - 1]
            salt = chance.choice([b"", b"", b"x"])
            todo[name] = world.add(name, ids, chance.randint(1, room - len(ids)), salt)
        elif todo and chance.random() < 0.1:
            gone = todo.pop(chance.choice(list(todo)))
            world.scheduler.remove(gone, is_finite=False)
        step = world.pick()
        assert (step is None) == (not todo)
        if step is None:
            continue
        check_step(step, world.max_step_tokens, world.max_step_sequences, size)
        num_waiting_anchors += any(
            each.num_anchored_blocks and not each.num_computed_tokens for each in world.scheduler
        )
        for sequence in world.fail(step) if chance.random() < 0.05 else world.compute(step):
            num_cached += sequence.num_cached_tokens
            del todo[sequence.job_id]
        world.scheduler.check()
    world.drain()
    assert world.pool.num_held_tokens == 0
    return num_cached, num_waiting_anchors


@pytest.mark.slow
def test_every_sequence_reads_its_own_beginning_over_random_operations() -> None:
    found = [_random_run(seed) for seed in range(8)]
    assert sum(num_cached for num_cached, _ in found) > 1000
    assert sum(num_waiting for _, num_waiting in found) > 10


def test_the_whole_blocks_of_an_ended_answer_are_known_but_the_last_token_is_computed() -> None:
    world = World(4, 64, 64, 8)
    first = world.add("a", [7] * 10, 7)
    world.drain()
    assert len(first.token_ids) == 17  # of which 16 were computed
    again = world.add("again", first.token_ids, 1)
    shorter = world.add("shorter", first.token_ids[:16], 1)
    world.drain()
    assert (again.num_cached_tokens, shorter.num_cached_tokens) == (16, 12)


def test_a_prompt_shares_with_one_that_is_running() -> None:
    world = World(4, 64, 8, 8)
    world.add("a", [7] * 30, 20)
    for _ in range(2):
        step = world.pick()
        assert step is not None
        world.compute(step)
    later = world.add("b", [7] * 30, 20)
    world.drain()
    assert later.num_cached_tokens >= 16


def test_equal_prompts_that_come_together_are_computed_once() -> None:
    world = World(4, 64, 64, 8)
    sequences = [world.add(str(index), [7] * 30, 1) for index in range(5)]
    step = world.pick()
    assert step is not None
    assert len(step.slices) == 5
    world.compute(step)
    assert [each.num_cached_tokens for each in sequences] == [0, 28, 28, 28, 28]
    assert world.num_computed == 30 + 4 * 2


def test_another_salt_shares_nothing() -> None:
    world = World(4, 64, 64, 8)
    world.add("a", [7] * 30, 1, salt=b"a")
    other = world.add("b", [7] * 30, 1, salt=b"b")
    same = world.add("c", [7] * 30, 1, salt=b"a")
    world.drain()
    assert (other.num_cached_tokens, same.num_cached_tokens) == (0, 28)


def test_what_a_failed_step_wrote_is_not_shared() -> None:
    world = World(4, 64, 16, 8)
    world.add("a", [7] * 30, 1)
    step = world.pick()
    assert step is not None
    world.fail(step)
    later = world.add("b", [7] * 30, 1)
    world.drain()
    assert later.num_cached_tokens == 0


def test_blocks_that_are_shared_are_counted_once() -> None:
    world = World(4, 64, 64, 8)
    for name in "abc":
        world.add(name, [7] * 18, 9)
    assert world.pick() is not None
    assert world.pool.num_held_tokens == 4 * (4 + 3 * 1)


def test_a_preempted_sequence_finds_what_is_left_of_its_blocks() -> None:
    world = World(2, 16, 32, 8)
    for name, token in (("a", 5), ("b", 6)):
        world.add(name, [token] * 8, 16)
    world.drain()
    num_recomputed = world.num_computed - 2 * 23
    assert 0 < num_recomputed <= 8  # the second one gave way with 16 tokens computed


def test_anchors_stay_through_preemption_and_leave_room_for_the_longest() -> None:
    world = World(2, 24, 32, 8, max_anchored_blocks=8)
    shown = [9] * 8
    world.add("first", [*shown, 1], 1)
    world.drain()
    long = world.add("long", [5] * 8, 24)
    anchored = [world.add(name, [*shown, token], 9) for name, token in (("b", 2), ("c", 3))]
    assert [each.num_anchored_blocks for each in anchored] == [2, 2]
    held = list(anchored[0].block_ids)
    while (step := world.pick()) is not None:
        for each in anchored:
            assert each.block_ids[: each.num_anchored_blocks] == held[: each.num_anchored_blocks]
        world.compute(step)
    assert len(long.token_ids) == 32
