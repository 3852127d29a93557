"""Sequences in, the next `Step` out: who computes which tokens, and in which blocks."""

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter

from workers.language.blocks import BlockPool
from workers.language.sequence import Sequence
from workers.messages import Stats

MAX_PASSES = 16
PROMPT_SHARES = 4  # one of so many is the oldest prompt's


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
    """Decides, within limits of tokens and sequences per step.

    Sequences that only need their next token go first, so that answers flow while prompts are
    read in chunks. A part of what then is left goes to the oldest prompt, so that each is read;
    the rest to the shortest, so that a short one does not wait for long ones that came before.

    A sequence gets the blocks of all its known tokens when it is admitted; when a growing answer
    finds no free block, the youngest running sequence gives its blocks up and is computed anew
    later. The oldest never does, so there is always progress. One that waits for blocks is passed
    by at most `MAX_PASSES` younger ones; one that gave up its blocks by none. What is held keeps
    its place: others go on and start meanwhile.

    A block can be shared as soon as a step is to fill it, also by a sequence that starts in the
    same step: in each layer, all of a step's keys and values are written before any are read.
    Nobody writes to a block that is shared, because only full ones are, and the last token of a
    sequence is always computed.
    """

    def __init__(
        self,
        blocks: BlockPool,
        max_step_tokens: int,
        max_step_sequences: int,
        max_anchored_blocks: int = 0,
    ) -> None:
        """At least a longest sequence's blocks must be there beside `max_anchored_blocks`."""
        self._blocks = blocks
        self._max_anchored_blocks = max_anchored_blocks
        self._max_step_tokens = max_step_tokens
        # All that run may decode in one step, so the newest tokens never exceed the budget.
        self._max_running = min(max_step_sequences, max_step_tokens)
        self._running: list[Sequence] = []  # oldest first
        self._waiting: deque[Sequence] = deque()  # oldest first, but preempted ones in front
        self._num_arrived = 0
        self._anchors: Counter[int] = Counter()  # by block, how many sequences have it anchored
        self._dirty_blocks: list[int] = []

    @property
    def num_running(self) -> int:
        """Sequences that take part in steps."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Sequences that do not, and hold no blocks but anchored ones."""
        return len(self._waiting)

    def load(self) -> Stats:
        """What the worker tells of its load."""
        return Stats(
            num_running=self.num_running,
            num_waiting=self.num_waiting,
            kv_used_tokens=self._blocks.num_held_tokens,
            kv_cached_tokens=self._blocks.num_kept_tokens,
            num_images_waiting=0,
        )

    def __iter__(self) -> Iterator[Sequence]:
        yield from self._running
        yield from self._waiting

    def num_anchorable_tokens(self, sequence: Sequence) -> int:
        """Tokens at the beginning of a new sequence that are known and may be anchored."""
        found = self._find(sequence)
        # What others have anchored takes up nothing more.
        num_new = list(accumulate((each not in self._anchors for each in found), initial=0))
        num_blocks = bisect_right(num_new, self._max_anchored_blocks - len(self._anchors)) - 1
        return num_blocks * self._blocks.block_tokens

    def add(self, sequence: Sequence, num_anchored_tokens: int = 0) -> None:
        """Queue a sequence behind all others.

        The blocks of its first `num_anchored_tokens`, which `num_anchorable_tokens` allows, are
        its own from now on to its end: nothing will ever ask to compute these tokens.
        """
        count = self._blocks.num_missing((), num_anchored_tokens)
        sequence.block_ids = self._find(sequence)[:count]
        sequence.num_anchored_blocks = count
        self._blocks.share(sequence.block_ids)
        self._anchors.update(sequence.block_ids)
        self._waiting.append(sequence)
        self._num_arrived += 1
        sequence.arrival = self._num_arrived
        sequence.num_known_tokens = len(self._find(sequence)) * self._blocks.block_tokens

    def remove(self, sequence: Sequence, is_finite: bool) -> None:
        """Forget a sequence and free its blocks.

        Attention gives padding the weight zero, but zero times NaN is NaN: blocks whose content
        was not seen to be finite are zeroed before another sequence computes with them.
        """
        (self._running if sequence in self._running else self._waiting).remove(sequence)
        for block_id in sequence.block_ids[: sequence.num_anchored_blocks]:
            self._anchors[block_id] -= 1
            if not self._anchors[block_id]:
                del self._anchors[block_id]
        sequence.num_anchored_blocks = 0
        self._release(sequence, is_finite)

    def pick(self) -> Step | None:
        """The next step, with the blocks that it writes to taken; None when nothing can run."""
        slices = self._decode()
        slices += self._read(self._max_step_tokens - len(slices))
        if not slices:
            return None
        dirty_blocks, self._dirty_blocks = tuple(self._dirty_blocks), []
        return Step(tuple(slices), dirty_blocks)

    def check(self) -> None:
        """Assert the invariants; costs time in proportion to the number of blocks."""
        self._blocks.check([sequence.block_ids for sequence in self])
        anchors = Counter(b for each in self for b in each.block_ids[: each.num_anchored_blocks])
        assert anchors == self._anchors, "anchors are not as many as counted"
        assert len(anchors) <= self._max_anchored_blocks, "anchors leave too little room"
        assert self.num_running <= self._max_running, "too many running sequences"
        assert self._running == sorted(self._running, key=attrgetter("arrival")), "wrong order"
        for sequence in self._running:
            assert sequence.is_running, "a running sequence holds no blocks"
            room = len(sequence.block_ids) * self._blocks.block_tokens
            assert sequence.num_computed_tokens < sequence.num_tokens, "nothing left to compute"
            assert sequence.num_computed_tokens <= room, "computed more than the blocks hold"
        for sequence in self._waiting:
            num_held = len(sequence.block_ids)
            assert num_held == sequence.num_anchored_blocks, "a waiting sequence holds blocks"
            assert sequence.num_computed_tokens == 0, "a waiting sequence has computed tokens"

    def _decode(self) -> list[Slice]:
        """One slice for each sequence that lacks nothing but its newest token."""
        slices: list[Slice] = []
        index = 0
        while index < len(self._running):  # preemption takes from the end, behind the index
            sequence = self._running[index]
            if _num_left(sequence) == 1 and self._grow(sequence):
                slices.append(_slice(sequence, 1))
                self._name(slices[-1])
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

    def _read(self, budget: int) -> list[Slice]:
        """Slices of prompts, and of answers that are computed anew, for `budget` tokens."""
        readers = [each for each in self._running if _num_left(each) > 1]
        readers += [each for each in self._waiting if not each.is_held]
        lengths: dict[Sequence, int] = {}
        readers.sort(key=attrgetter("arrival"))
        if readers:
            budget -= self._grant(readers[0], -(-budget // PROMPT_SHARES), lengths)
        for sequence in sorted(readers, key=_size):  # the older first among equals
            budget -= self._grant(sequence, budget, lengths)
        return [_slice(sequence, length) for sequence, length in lengths.items()]

    def _grant(self, sequence: Sequence, budget: int, lengths: dict[Sequence, int]) -> int:
        """Let a sequence compute up to `budget` more tokens in this step; how many they are."""
        if budget < 1 or (not sequence.is_running and not self._admit(sequence)):
            return 0
        before = lengths.get(sequence, 0)
        length = min(_num_left(sequence) - before, budget)
        if length:
            lengths[sequence] = before + length
            self._name(_slice(sequence, before + length))
        return length

    def _admit(self, sequence: Sequence) -> bool:
        """Start a waiting sequence, if it is its turn and there is room; whether it runs now."""
        first = next(each for each in self._waiting if not each.is_held)
        known = self._find(sequence)
        if len(self._running) >= self._max_running or not self._fits(sequence, known):
            return False
        if first is not sequence and not self._fits(first, self._find(first)):
            if first.num_completion_tokens or first.num_passes >= MAX_PASSES:
                return False
            first.num_passes += 1
        self._waiting.remove(sequence)
        self._start(sequence, known)
        insort(self._running, sequence, key=attrgetter("arrival"))
        return True

    def _fits(self, sequence: Sequence, known: list[int]) -> bool:
        """Whether there are blocks for a sequence, of which those of the beginning are known.

        A block for each running sequence stays free, or the newcomer would be preempted at once.
        """
        missing = self._blocks.num_missing(known, sequence.num_tokens)
        missing += self._blocks.num_kept_among(known)
        return missing + len(self._running) <= self._blocks.num_free

    def _start(self, sequence: Sequence, known: list[int]) -> None:
        """Give a sequence its blocks."""
        size, held = self._blocks.block_tokens, len(sequence.block_ids)
        assert known[:held] == sequence.block_ids, "an anchored block is not found any more"
        self._blocks.share(known[held:])
        missing = self._blocks.num_missing(known, sequence.num_tokens)
        sequence.block_ids = known + self._blocks.take(missing)
        sequence.num_computed_tokens = len(known) * size
        if not sequence.num_completion_tokens:
            sequence.num_cached_tokens = sequence.num_computed_tokens

    def _find(self, sequence: Sequence) -> list[int]:
        """Blocks that hold the beginning of a sequence, as far as it need not be computed."""
        if sequence.keys is None:
            return []
        num_blocks = sequence.num_sparable_tokens // self._blocks.block_tokens
        return self._blocks.find(sequence.keys.upto(sequence.token_ids, num_blocks))

    def _name(self, piece: Slice) -> None:
        """From now on the blocks that a slice fills can be shared."""
        sequence, size = piece.sequence, self._blocks.block_tokens
        if sequence.keys is None or piece.start // size == piece.end // size:
            return
        keys = sequence.keys.upto(sequence.token_ids, piece.end // size)
        for index in range(piece.start // size, piece.end // size):
            self._blocks.name(sequence.block_ids[index], keys[index])

    def _release(self, sequence: Sequence, is_finite: bool) -> None:
        """Give back all blocks but anchored ones."""
        first = sequence.num_anchored_blocks
        mine = sequence.block_ids[first:]
        num_sure = sequence.num_finite_tokens // self._blocks.block_tokens - first
        unsure = self._blocks.give_back(mine, len(mine) if is_finite else num_sure)
        self._dirty_blocks += unsure
        sequence.block_ids = sequence.block_ids[:first]
        sequence.num_computed_tokens = sequence.num_finite_tokens = 0


def _num_left(sequence: Sequence) -> int:
    """Tokens that can be computed now."""
    return sequence.num_tokens - sequence.num_computed_tokens - sequence.is_held


def _size(sequence: Sequence) -> int:
    """Class of what there is to compute: each holds sizes up to twice as large as the last.

    So of two prompts of about equal length the older stays the first.
    """
    known = sequence.num_computed_tokens if sequence.is_running else sequence.num_known_tokens
    return (sequence.num_tokens - known).bit_length()


def _slice(sequence: Sequence, length: int) -> Slice:
    return Slice(sequence, sequence.num_computed_tokens, length)
