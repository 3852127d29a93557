"""The KV cache's blocks: who holds which, and which are kept for prompts that begin alike."""

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence


class BlockPool:
    """Hands out block ids, counts their holders, finds them by key. Owned by the scheduler.

    A block is held (by one sequence or more), or kept (by nobody, but it has a key and may be
    shared again), or empty. Of the kept ones the longest unused is taken first.
    A block is sure once its content was seen to be finite; only sure ones are kept.
    """

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self._empty = list(range(num_blocks - 1, -1, -1))  # a stack: low ids first, warm ones again
        self._kept: OrderedDict[int, None] = OrderedDict()  # longest unused first
        self._num_holders = [0] * num_blocks
        self._is_sure = bytearray(num_blocks)
        self._by_key: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._empty) + len(self._kept)

    @property
    def num_held_tokens(self) -> int:
        """Capacity of the blocks that sequences hold, in tokens."""
        return (self.num_blocks - self.num_free) * self.block_tokens

    @property
    def num_kept_tokens(self) -> int:
        """Tokens in blocks that are kept though nobody holds them."""
        return len(self._kept) * self.block_tokens

    def num_missing(self, block_ids: Sequence[int], num_tokens: int) -> int:
        """Blocks to add to `block_ids` so that they hold `num_tokens`."""
        return max(0, -(-num_tokens // self.block_tokens) - len(block_ids))

    def find(self, keys: Iterable[bytes]) -> list[int]:
        """The blocks of the first keys, up to the first that is not known."""
        found = []
        for key in keys:
            block_id = self._by_key.get(key)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def num_kept_among(self, block_ids: Iterable[int]) -> int:
        """How many of these `share` would take from what is free."""
        return sum(block_id in self._kept for block_id in block_ids)

    def share(self, block_ids: Iterable[int]) -> None:
        """Add a holder to blocks that were found."""
        for block_id in block_ids:
            assert block_id in self._key_of, f"block {block_id} is empty"
            self._kept.pop(block_id, None)
            self._num_holders[block_id] += 1

    def take(self, count: int) -> list[int]:
        """Take `count` blocks for one holder; ask `num_free` first."""
        assert count <= self.num_free, f"{count} blocks asked, {self.num_free} free"
        taken = [self._empty.pop() if self._empty else self._evict() for _ in range(count)]
        for block_id in taken:
            self._num_holders[block_id] = 1
            self._is_sure[block_id] = 0
        return taken

    def name(self, block_id: int, key: bytes) -> None:
        """Let others find a held block, which the step under way fills.

        When another one has the same content already, that stays the one which is found.
        """
        assert self._num_holders[block_id], f"block {block_id} has no holder"
        if block_id not in self._key_of and key not in self._by_key:
            self._by_key[key] = block_id
            self._key_of[block_id] = key

    def give_back(self, block_ids: Sequence[int], num_sure: int) -> list[int]:
        """Take a holder away from blocks, of which the first `num_sure` are sure by now.

        Returns:
            blocks that are empty now and whose content was never seen to be finite
        """
        unsure = []
        # The end first: of a prompt that is not used any more, the beginning stays longest.
        for index in range(len(block_ids) - 1, -1, -1):
            block_id = block_ids[index]
            assert self._num_holders[block_id], f"block {block_id} was free already"
            self._num_holders[block_id] -= 1
            self._is_sure[block_id] |= index < num_sure
            if not self._num_holders[block_id] and not self._settle(block_id):
                unsure.append(block_id)
        return unsure

    def _settle(self, block_id: int) -> bool:
        """Keep or empty a block that nobody holds any more; whether it is sure."""
        is_sure = bool(self._is_sure[block_id])
        if is_sure and block_id in self._key_of:
            self._kept[block_id] = None
        else:
            self._forget(block_id)
            self._empty.append(block_id)
        return is_sure

    def _evict(self) -> int:
        block_id, _ = self._kept.popitem(last=False)
        self._forget(block_id)
        return block_id

    def _forget(self, block_id: int) -> None:
        key = self._key_of.pop(block_id, None)
        if key is not None:
            del self._by_key[key]

    def check(self, holders: Iterable[Sequence[int]]) -> None:
        """Assert that each block is empty, kept, or held as often as `holders` name it."""
        counts: Counter[int] = Counter()
        for holder in holders:
            assert len(holder) == len(set(holder)), "a sequence holds a block twice"
            counts.update(holder)
        found = [counts[block_id] for block_id in range(self.num_blocks)]
        assert found == self._num_holders, "the holders of a block are not as many as counted"
        places = [*counts, *self._empty, *self._kept]
        assert sorted(places) == list(range(self.num_blocks)), "a block is in two places or none"
        named = {block_id: key for key, block_id in self._by_key.items()}
        assert named == self._key_of, "a key leads to another block"
        assert len(named) == len(self._by_key), "a block has two keys"
        assert not named.keys() & set(self._empty), "an empty block can be found"
        for block_id in self._kept:
            assert block_id in named, "a block is kept that nobody can find"
            assert self._is_sure[block_id], "a block is kept that may hold NaN"
