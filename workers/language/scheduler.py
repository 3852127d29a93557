"""Sequences in, the next `Step` out: who computes which tokens, and in which blocks."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from workers.language.blocks import BlockPool
from workers.language.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive tokens of one sequence that a step computes."""

    sequence: Sequence
    start: int
    length: int

    @property
    def end(self) -> int:
        """Index after the last token; the sequence's context once the step has run."""
        return self.start + self.length

    @property
    def is_last(self) -> bool:
        """Whether the next token can be chosen after the step."""
        return self.end == self.sequence.num_tokens


@dataclass(frozen=True, slots=True)
class Step:
    """What one forward pass computes."""

    slices: tuple[Slice, ...]
    dirty_blocks: tuple[int, ...]  # to be zeroed first; see `Scheduler.remove`


class Scheduler:
    """Decides, first come first served, within limits of tokens and sequences per step.

    Sequences that only need their next token go first, so that answers flow while prompts are
    read in chunks. A sequence gets the blocks of all its known tokens when it is admitted; when
    a growing answer finds no free block, the youngest running sequence gives its blocks up and
    is computed anew later. The oldest never does, so there is always progress.
    """

    def __init__(self, blocks: BlockPool, max_step_tokens: int, max_step_sequences: int) -> None:
        self._blocks = blocks
        self._max_step_tokens = max_step_tokens
        # All that run may decode in one step, so the newest tokens never exceed the budget.
        self._max_running = min(max_step_sequences, max_step_tokens)
        self._running: list[Sequence] = []  # oldest first
        self._waiting: deque[Sequence] = deque()  # preempted ones in front, they are older
        self._dirty_blocks: list[int] = []

    @property
    def num_running(self) -> int:
        """Sequences that hold blocks."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that hold none."""
        return len(self._waiting)

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._running
        yield from self._waiting

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence behind all others."""
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence, is_finite: bool) -> None:
        """Forget a sequence and free its blocks.

        Attention gives padding the weight zero, but zero times NaN is NaN: blocks whose content
        was not seen to be finite are zeroed before another sequence computes with them.
        """
        if sequence in self._running:
            self._running.remove(sequence)
            self._release(sequence, is_finite)
        else:
            self._waiting.remove(sequence)

    def pick(self) -> Step | None:
        """The next step, with the blocks that it writes to taken; None when nothing can run."""
        slices = self._decode()
        budget = self._max_step_tokens - len(slices)
        budget = self._prefill(slices, budget)
        self._admit(slices, budget)
        if not slices:
            return None
        dirty_blocks, self._dirty_blocks = tuple(self._dirty_blocks), []
        return Step(tuple(slices), dirty_blocks)

    def check(self) -> None:
        """Assert the invariants; costs time in proportion to the number of blocks."""
        self._blocks.check(sequence.block_ids for sequence in self._running)
        assert self.num_running <= self._max_running, "too many running sequences"
        for sequence in self._running:
            room = len(sequence.block_ids) * self._blocks.block_tokens
            assert sequence.num_computed_tokens < sequence.num_tokens, "nothing left to compute"
            assert sequence.num_computed_tokens <= room, "computed more than the blocks hold"
        for sequence in self._waiting:
            assert not sequence.block_ids, "a waiting sequence holds blocks"
            assert sequence.num_computed_tokens == 0, "a waiting sequence has computed tokens"

    def _decode(self) -> list[Slice]:
        """One slice for each sequence that lacks nothing but its newest token."""
        slices: list[Slice] = []
        index = 0
        while index < len(self._running):  # preemption takes from the end, behind the index
            sequence = self._running[index]
            if _num_left(sequence) == 1 and self._grow(sequence):
                slices.append(Slice(sequence, sequence.num_computed_tokens, 1))
            index += 1
        return slices

    def _grow(self, sequence: Sequence) -> bool:
        """Take the block of the newest token, from the youngest if need be.

        False when the youngest is the sequence itself, which now waits.
        """
        missing = self._blocks.num_missing(sequence.block_ids, sequence.num_tokens)
        while missing > self._blocks.num_free:
            youngest = self._running.pop()
            self._release(youngest, is_finite=False)
            self._waiting.appendleft(youngest)
            if youngest is sequence:
                return False
        if missing:
            sequence.block_ids += self._blocks.take(missing)
        return True

    def _prefill(self, slices: list[Slice], budget: int) -> int:
        """Go on with prompts that are half read; what is left of the budget."""
        for sequence in self._running:
            length = min(_num_left(sequence), budget)
            if length > 0 and _num_left(sequence) > 1:
                slices.append(Slice(sequence, sequence.num_computed_tokens, length))
                budget -= length
        return budget

    def _admit(self, slices: list[Slice], budget: int) -> None:
        """Start waiting sequences in order, as long as the next one fits."""
        while budget > 0 and self._waiting and self._fits(self._waiting[0]):
            sequence = self._waiting.popleft()
            missing = self._blocks.num_missing(sequence.block_ids, sequence.num_tokens)
            sequence.block_ids += self._blocks.take(missing)
            self._running.append(sequence)
            length = min(_num_left(sequence), budget)
            slices.append(Slice(sequence, sequence.num_computed_tokens, length))
            budget -= length

    def _fits(self, sequence: Sequence) -> bool:
        """Whether the sequence may run beside those that do.

        A block for each running sequence stays free, or the newcomer would be preempted at once.
        """
        if len(self._running) >= self._max_running:
            return False
        missing = self._blocks.num_missing(sequence.block_ids, sequence.num_tokens)
        return missing + len(self._running) <= self._blocks.num_free

    def _release(self, sequence: Sequence, is_finite: bool) -> None:
        if not is_finite:
            self._dirty_blocks += sequence.block_ids
        self._blocks.give_back(sequence.block_ids)
        sequence.block_ids = []
        sequence.num_computed_tokens = 0


def _num_left(sequence: Sequence) -> int:
    return sequence.num_tokens - sequence.num_computed_tokens
