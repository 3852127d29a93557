"""The scheduler as plain arithmetic: limits, order, preemption and random operations."""

import random

import pytest

from workers.language.blocks import BlockPool
from workers.language.prefix import BlockKeys
from workers.language.scheduler import MAX_PASSES, PROMPT_SHARES, Scheduler, Step
from workers.language.sequence import Sequence
from workers.sampling import Sampling


def make_sequence(name: str, num_prompt_tokens: int, max_tokens: int) -> Sequence:
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=max_tokens, stop_token_ids=()
    )
    return Sequence(
        job_id=name,
        token_ids=[1] * num_prompt_tokens,
        num_prompt_tokens=num_prompt_tokens,
        sampling=sampling,
        max_tokens=num_prompt_tokens + max_tokens,
        deadline=1e9,
    )


def make_scheduler(
    num_blocks: int = 64, block_tokens: int = 4, tokens: int = 16, sequences: int = 8
) -> Scheduler:
    return Scheduler(BlockPool(num_blocks, block_tokens), tokens, sequences)


def run(scheduler: Scheduler, step: Step) -> list[Sequence]:
    """Pretend to compute a step; the sequences that ended with it."""
    ended = []
    for piece in step.slices:
        piece.sequence.num_computed_tokens = piece.end
        if piece.end == piece.sequence.num_tokens and piece.sequence.accept(2):
            scheduler.remove(piece.sequence, is_finite=True)
            ended.append(piece.sequence)
    return ended


def run_one(scheduler: Scheduler) -> list[Sequence]:
    step = scheduler.pick()
    assert step is not None
    return run(scheduler, step)


def keyed(name: str, num_prompt_tokens: int, max_tokens: int) -> Sequence:
    """A sequence whose blocks others may share."""
    sequence = make_sequence(name, num_prompt_tokens, max_tokens)
    sequence.keys = BlockKeys(bytes(8), b"", (), 4)
    return sequence


def shape(step: Step | None) -> list[tuple[str, int, int]]:
    assert step is not None
    return [(piece.sequence.job_id, piece.start, piece.length) for piece in step.slices]


def test_prompts_are_cut_and_decoding_goes_first() -> None:
    scheduler = make_scheduler(tokens=10)
    scheduler.add(make_sequence("a", 4, 5))
    scheduler.add(make_sequence("b", 20, 5))
    scheduler.add(make_sequence("c", 3, 5))
    shapes = []
    for _ in range(4):
        step = scheduler.pick()
        shapes.append(shape(step))
        assert step is not None
        run(scheduler, step)
    assert shapes == [
        [("a", 0, 4), ("c", 0, 3), ("b", 0, 3)],
        [("a", 4, 1), ("c", 3, 1), ("b", 3, 8)],
        [("a", 5, 1), ("c", 4, 1), ("b", 11, 8)],
        [("a", 6, 1), ("b", 19, 1), ("c", 5, 1)],
    ]


def test_the_youngest_gives_way_and_comes_back_first() -> None:
    scheduler = make_scheduler(num_blocks=6)
    for name in "ab":
        scheduler.add(make_sequence(name, 7, 9))
    scheduler.add(make_sequence("c", 4, 2))
    starts: list[str] = []
    ended: list[str] = []
    while (step := scheduler.pick()) is not None:
        names = [piece.sequence.job_id for piece in step.slices]
        assert "a" in names or "a" in ended
        starts += [piece.sequence.job_id for piece in step.slices if not piece.start]
        ended += [each.job_id for each in run(scheduler, step)]
        scheduler.check()
    assert starts == ["a", "b", "b", "c"]
    assert sorted(ended) == ["a", "b", "c"]


def steps_until_told(scheduler: Scheduler, sequence: Sequence) -> int:
    """Steps up to the first token of a sequence."""
    for count in range(1, 1000):
        step = scheduler.pick()
        assert step is not None
        run(scheduler, step)
        scheduler.check()
        if sequence.num_completion_tokens:
            return count
    raise AssertionError("never")


@pytest.mark.parametrize("num_long", [1, 3, 30])
@pytest.mark.parametrize(("length", "num_steps"), [(12, 1), (13, 2), (60, 5)])
def test_a_short_prompt_does_not_wait_for_long_ones(
    num_long: int, length: int, num_steps: int
) -> None:
    scheduler = make_scheduler(num_blocks=600, block_tokens=64, sequences=64)
    for index in range(num_long):
        scheduler.add(make_sequence(f"long {index}", 900, 5))
    run_one(scheduler)
    short = make_sequence("short", length, 5)
    scheduler.add(short)
    assert steps_until_told(scheduler, short) <= num_steps


def test_a_long_prompt_is_read_though_short_ones_keep_coming() -> None:
    scheduler = make_scheduler(num_blocks=1000, sequences=64)
    long = make_sequence("long", 400, 5)
    scheduler.add(long)
    for count in range(400 // (16 // PROMPT_SHARES)):
        scheduler.add(make_sequence(f"short {count}", 16, 1))
        run_one(scheduler)
    assert long.num_completion_tokens


def test_the_older_of_two_long_prompts_is_read_as_if_alone() -> None:
    scheduler = make_scheduler(num_blocks=1000)
    first, second = make_sequence("first", 160, 5), make_sequence("second", 150, 5)
    for each in (first, second):
        scheduler.add(each)
    assert steps_until_told(scheduler, first) == 160 // 16


def test_what_is_known_of_a_prompt_does_not_make_it_long() -> None:
    scheduler = make_scheduler(num_blocks=1000)
    scheduler.add(keyed("before", 100, 1))
    while (step := scheduler.pick()) is not None:
        run(scheduler, step)
    scheduler.add(make_sequence("long", 90, 5))
    again = keyed("again", 103, 1)
    scheduler.add(again)
    assert steps_until_told(scheduler, again) == 1


def test_a_prompt_without_room_is_passed_by_a_few_and_no_more() -> None:
    scheduler = make_scheduler(num_blocks=10)
    scheduler.add(make_sequence("holder", 4, 28))
    run_one(scheduler)
    scheduler.add(make_sequence("large", 36, 2))
    others = [make_sequence(f"small {index}", 1, 1) for index in range(2 * MAX_PASSES)]
    told: list[str] = []
    for other in others:
        scheduler.add(other)
        told += [each.job_id for each in run_one(scheduler)]
    while (step := scheduler.pick()) is not None:
        told += [each.job_id for each in run(scheduler, step)]
    assert told.index("holder") == MAX_PASSES
    first_after = told.index("large")
    assert first_after < len(told) - 1
    assert set(told[:MAX_PASSES]) == {each.job_id for each in others[:MAX_PASSES]}


def test_running_sequences_never_outnumber_a_step() -> None:
    scheduler = make_scheduler(tokens=3, sequences=8)
    for index in range(6):
        scheduler.add(make_sequence(str(index), 1, 4))
    while (step := scheduler.pick()) is not None:
        assert sum(piece.length for piece in step.slices) <= 3
        run(scheduler, step)
        scheduler.check()


def test_an_aborted_sequence_leaves_its_blocks_to_be_zeroed() -> None:
    scheduler = make_scheduler(num_blocks=4)
    first = make_sequence("a", 6, 5)
    scheduler.add(first)
    scheduler.pick()
    held = tuple(first.block_ids)
    scheduler.remove(first, is_finite=False)
    scheduler.add(make_sequence("b", 3, 2))
    step = scheduler.pick()
    assert step is not None
    assert len(held) == 2
    assert sorted(step.dirty_blocks) == sorted(held)
    run(scheduler, step)
    later = scheduler.pick()
    assert later is not None
    assert later.dirty_blocks == ()


def _random_run(seed: int) -> None:
    chance = random.Random(seed)
    tokens, sequences = chance.randint(1, 40), chance.randint(1, 9)
    size, num_blocks = chance.randint(1, 8), chance.randint(4, 30)
    scheduler = make_scheduler(num_blocks, size, tokens, sequences)
    room = num_blocks * size
    todo: dict[str, Sequence] = {}
    for count in range(400):
        if count < 300 and chance.random() < 0.3:
            prompt = chance.randint(1, room - 1)
            name = str(count)
            todo[name] = make_sequence(name, prompt, chance.randint(1, room - prompt))
            scheduler.add(todo[name])
        elif todo and chance.random() < 0.1:
            scheduler.remove(todo.pop(chance.choice(list(todo))), chance.random() < 0.5)
        hold(chance, list(todo.values()))
        step = scheduler.pick()
        scheduler.check()
        is_stuck = any(each.is_held for each in todo.values())
        assert step is not None or is_stuck or not todo
        if step is None:
            continue
        check_step(step, tokens, sequences, size)
        for sequence in run(scheduler, step):
            del todo[sequence.job_id]
        scheduler.check()
    finish(scheduler, todo)
    assert not todo


def finish(scheduler: Scheduler, todo: dict[str, Sequence]) -> None:
    for sequence in todo.values():
        sequence.is_held = False
    while (step := scheduler.pick()) is not None:
        for sequence in run(scheduler, step):
            del todo[sequence.job_id]


def hold(chance: random.Random, todo: list[Sequence]) -> None:
    """Hold and let go some of those that have not begun, or only lack their newest token."""
    for sequence in todo:
        num_left = sequence.num_tokens - sequence.num_computed_tokens
        if chance.random() < 0.2 and (not sequence.num_computed_tokens or num_left == 1):
            sequence.is_held = not sequence.is_held


def check_step(step: Step, max_tokens: int, max_sequences: int, block_tokens: int) -> None:
    chosen = [piece.sequence for piece in step.slices]
    assert len(chosen) == len(set(chosen)) <= max_sequences
    assert 0 < sum(piece.length for piece in step.slices) <= max_tokens
    for piece in step.slices:
        assert piece.length > 0
        assert not piece.sequence.is_held
        assert piece.start == piece.sequence.num_computed_tokens
        assert piece.end <= piece.sequence.num_tokens
        assert piece.end <= len(piece.sequence.block_ids) * block_tokens


def test_invariants_hold_over_random_operations() -> None:
    for seed in range(5):
        _random_run(seed)


def test_what_is_held_before_it_starts_is_overtaken_and_then_comes_first() -> None:
    scheduler = make_scheduler(tokens=10)
    held = make_sequence("a", 7, 5)
    held.is_held = True
    shapes = []
    for sequence in (held, make_sequence("b", 3, 5), make_sequence("c", 12, 5)):
        scheduler.add(sequence)
    for is_held in (True, False, False):
        held.is_held = is_held
        step = scheduler.pick()
        shapes.append(shape(step))
        assert step is not None
        run(scheduler, step)
        scheduler.check()
    assert shapes == [
        [("b", 0, 3), ("c", 0, 7)],
        [("b", 3, 1), ("a", 0, 7), ("c", 7, 2)],
        [("a", 7, 1), ("b", 4, 1), ("c", 9, 3)],
    ]


def test_what_is_held_amid_its_answer_holds_nobody_up() -> None:
    scheduler = make_scheduler()
    held, other = make_sequence("a", 3, 5), make_sequence("b", 2, 5)
    shapes = []
    for sequence in (held, other):
        scheduler.add(sequence)
    for is_held in (False, True, True, False):
        held.is_held = is_held
        step = scheduler.pick()
        shapes.append(shape(step))
        assert step is not None
        run(scheduler, step)
        scheduler.check()
    assert shapes == [
        [("a", 0, 3), ("b", 0, 2)],
        [("b", 2, 1)],
        [("b", 3, 1)],
        [("a", 3, 1), ("b", 4, 1)],
    ]


def test_a_step_of_nothing_but_held_sequences_is_none() -> None:
    scheduler = make_scheduler()
    held = make_sequence("a", 1, 5)
    held.is_held = True
    scheduler.add(held)
    assert scheduler.pick() is None
    held.is_held = False
    assert shape(scheduler.pick()) == [("a", 0, 1)]
