"""A step that memory was too short for in, one sequence after the other out."""

from collections.abc import Callable, Sequence

from workers import memory
from workers.fail_kind import FailKind
from workers.language.scheduler import Slice, Step


def advance_singly(
    step: Step,
    block_tokens: int,
    advance: Callable[[Step], bool],
    fail: Callable[[Sequence[Slice], FailKind, str], None],
) -> None:
    """Run a step one sequence at a time, so that only what is too large by itself ends.

    Args:
        step: what could not be run at once.
        block_tokens: tokens in a block.
        advance: runs a step of one sequence; whether it went well.
        fail: ends the sequences of slices.
    """
    if len(step.slices) == 1:
        fail(step.slices, "out_of_memory", "too little memory to go on")
        return
    memory.give_back()
    empty: set[int] = set()  # blocks that should have been filled, and maybe were shared
    for piece in step.slices:
        blocks = piece.sequence.block_ids.copy()
        if not empty.isdisjoint(blocks):
            fail([piece], "out_of_memory", "what it shares could not be computed")
        elif not advance(Step((piece,), step.dirty_blocks)):
            empty.update(blocks[piece.start // block_tokens :])
