"""The KV cache's blocks: which are free, which are taken."""

from collections.abc import Iterable


class BlockPool:
    """Hands out block ids, each to one holder at a time. Owned by the scheduler."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks = num_blocks
        self.block_tokens = block_tokens
        self._free = list(range(num_blocks - 1, -1, -1))  # a stack: low ids first, warm ones again
        self._is_taken = bytearray(num_blocks)

    @property
    def num_free(self) -> int:
        """Blocks that can be taken now."""
        return len(self._free)

    @property
    def num_taken_tokens(self) -> int:
        """Capacity of the taken blocks, in tokens."""
        return (self.num_blocks - self.num_free) * self.block_tokens

    def num_missing(self, block_ids: list[int], num_tokens: int) -> int:
        """Blocks to add to `block_ids` so that they hold `num_tokens`."""
        return max(0, -(-num_tokens // self.block_tokens) - len(block_ids))

    def take(self, count: int) -> list[int]:
        """Take `count` free blocks; ask `num_free` first."""
        assert count <= self.num_free, f"{count} blocks asked, {self.num_free} free"
        taken = [self._free.pop() for _ in range(count)]
        for block_id in taken:
            self._is_taken[block_id] = 1
        return taken

    def give_back(self, block_ids: Iterable[int]) -> None:
        """Free blocks that were taken."""
        for block_id in block_ids:
            assert self._is_taken[block_id], f"block {block_id} was free already"
            self._is_taken[block_id] = 0
            self._free.append(block_id)

    def check(self, holders: Iterable[list[int]]) -> None:
        """Assert that every block is free or has exactly one of `holders`."""
        held = [block_id for holder in holders for block_id in holder]
        assert len(held) == len(set(held)), "a block has two holders"
        assert all(self._is_taken[block_id] for block_id in held), "a held block is marked free"
        assert len(held) == self._is_taken.count(1), "a taken block has no holder"
        assert len(held) + self.num_free == self.num_blocks, "blocks were lost"
