"""Packed attention against the plain reference, one sequence at a time."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from workers.families.decoder import LayerKv
from workers.language.attention import KvCache, PackedAttention, reference_attention
from workers.language.inputs import build_attention
from workers.language.scheduler import Slice
from workers.language.sequence import Sequence
from workers.messages import Sampling

QUERY_HEADS, KEY_HEADS, KEY_DIM, VALUE_DIM, SCALE = 6, 2, 16, 16, 0.3
BLOCK_TOKENS, NUM_BLOCKS = 4, 120
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0, max_tokens=1, stop_token_ids=())


@dataclass
class Case:
    """Keys and values of whole sequences, of which the slices compute the last tokens."""

    slices: list[Slice]
    keys: list[Tensor]  # [heads, context, dim] each
    values: list[Tensor]
    queries: list[Tensor]  # [query heads, length, dim] each
    cache: KvCache
    attention: PackedAttention

    def run(self) -> Tensor:
        def joined(tensors: list[Tensor]) -> Tensor:
            pairs = zip(tensors, self.slices, strict=True)
            return torch.cat([each[:, -piece.length :] for each, piece in pairs], dim=1)

        return self.attention.attend(
            0, joined(self.queries), joined(self.keys), joined(self.values), SCALE
        )

    def expected(self) -> Tensor:
        return torch.cat(
            [
                reference_attention(query, key, value, piece.start, SCALE)
                for query, key, value, piece in zip(
                    self.queries, self.keys, self.values, self.slices, strict=True
                )
            ]
        )


def make_case(parts: list[tuple[int, int]], content: float = 0.0) -> Case:
    """Slices as (start, length), in rows of that order; foreign blocks are full of `content`."""
    generator = torch.Generator().manual_seed(len(parts))
    spec = LayerKv(KEY_HEADS, KEY_DIM, KEY_HEADS, VALUE_DIM)
    cache = KvCache([spec], NUM_BLOCKS, BLOCK_TOKENS, torch.float32, torch.device("cpu"))
    blocks = random.Random(0).sample(range(NUM_BLOCKS), NUM_BLOCKS)
    slices, keys, values, queries, slots = [], [], [], [], []
    for index, (start, length) in enumerate(parts):
        end = start + length
        held = [blocks.pop() for _ in range(-(-end // BLOCK_TOKENS))]
        sequence = Sequence(str(index), [1] * end, end, SAMPLING, end + 1, 1e9, start)
        sequence.block_ids = held
        slices.append(Slice(sequence, start, length))
        keys.append(torch.randn(KEY_HEADS, end, KEY_DIM, generator=generator))
        values.append(torch.randn(KEY_HEADS, end, VALUE_DIM, generator=generator))
        queries.append(torch.randn(QUERY_HEADS, length, KEY_DIM, generator=generator))
        own = [held[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS for at in range(end)]
        if start:
            before = torch.tensor(own[:start])
            cache.write(0, before, keys[-1][:, :start], values[-1][:, :start])
        slots += own[start:]
    foreign = torch.full((KEY_HEADS, len(blocks) * BLOCK_TOKENS, KEY_DIM), content)
    places = torch.tensor(
        [block * BLOCK_TOKENS + offset for block in blocks for offset in range(BLOCK_TOKENS)]
    )
    cache.write(0, places, foreign, foreign)
    attention = build_attention(cache, torch.tensor(slots), slices, torch.float32)
    return Case(slices, keys, values, queries, cache, attention)


CASES = [
    pytest.param([(0, 5)], id="one prompt"),
    pytest.param([(9, 1)], id="one next token"),
    pytest.param([(3, 1), (3, 1)], id="equal contexts"),
    pytest.param([(0, 1), (2, 1), (7, 1), (30, 1)], id="unequal contexts"),
    pytest.param([(6, 5)], id="a later chunk"),
    pytest.param([(1, 1), (11, 1), (0, 7), (4, 9), (13, 2)], id="all together"),
]


@pytest.mark.parametrize("parts", CASES)
def test_packed_attention_equals_the_reference(parts: list[tuple[int, int]]) -> None:
    case = make_case(parts)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("parts", CASES)
def test_what_others_left_in_their_blocks_has_no_effect(parts: list[tuple[int, int]]) -> None:
    case = make_case(parts, content=float("nan"))
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)


def test_very_unequal_contexts_are_computed_apart() -> None:
    case = make_case([(3, 1), (40, 1), (330, 1)])
    assert [part.num_keys for part in case.attention.singles] == [41, 331]
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)


def test_reference_sees_no_later_token() -> None:
    case = make_case([(2, 4)])
    before = case.expected()
    case.keys[0][:, 5] += 1.0
    case.values[0][:, 5] += 1.0
    change = (case.expected() - before).abs().amax((1, 2))
    assert change[:3].max() == 0
    assert change[3] > 0


def test_zeroed_blocks_hold_zeros_and_others_stay() -> None:
    case = make_case([(8, 1), (7, 1)])
    first, second = (torch.tensor([piece.sequence.block_ids]) for piece in case.slices)
    case.run()
    before = case.cache.read(0, second)
    case.cache.zero(first[0])
    assert all(not each.any() for each in case.cache.read(0, first))
    assert all(map(torch.equal, case.cache.read(0, second), before))
