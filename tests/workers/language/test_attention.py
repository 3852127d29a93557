"""Packed attention against the plain reference, one sequence at a time."""

import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from workers.families.decoder import Attention, LayerKv
from workers.language.attention import KvCache, PackedAttention, reference_attention
from workers.language.inputs import build_attention
from workers.language.scheduler import Slice
from workers.language.sequence import Sequence
from workers.sampling import Sampling

QUERY_HEADS, SCALE = 6, 0.3
GROUPED = LayerKv(num_heads=2, key_dim=16, value_dim=16)
LATENT = LayerKv(num_heads=1, key_dim=20, value_dim=16, is_latent=True)
BLOCK_TOKENS, NUM_BLOCKS = 4, 120
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0, max_tokens=1, stop_token_ids=())


@dataclass
class Case:
    """Keys and values of whole sequences, of which the slices compute the last tokens."""

    slices: list[Slice]
    keys: list[Tensor]  # [heads, context, dim] each
    values: list[Tensor]  # views of the keys when the layer is latent
    queries: list[Tensor]  # [query heads, length, dim] each
    cache: KvCache
    slots: Tensor
    attention: Attention

    def run(self) -> Tensor:
        def joined(tensors: list[Tensor]) -> Tensor:
            pairs = zip(tensors, self.slices, strict=True)
            return torch.cat([each[:, -piece.length :] for each, piece in pairs], dim=1)

        values = None if self.cache.spec[0].is_latent else joined(self.values)
        return self.attention.attend(0, joined(self.queries), joined(self.keys), values, SCALE)

    def expected(self) -> Tensor:
        return torch.cat(
            [
                reference_attention(query, key, value, piece.start, SCALE)
                for query, key, value, piece in zip(
                    self.queries, self.keys, self.values, self.slices, strict=True
                )
            ]
        )


def make_case(
    parts: list[tuple[int, int]],
    content: float = 0.0,
    spec: LayerKv = GROUPED,
    dtype: torch.dtype = torch.float32,
) -> Case:
    """Slices as (start, length), in rows of that order; foreign blocks are full of `content`."""
    generator = torch.Generator().manual_seed(len(parts))
    cache = KvCache([spec], NUM_BLOCKS, BLOCK_TOKENS, dtype, torch.device("cpu"))

    def random_rows(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype)

    blocks = random.Random(0).sample(range(NUM_BLOCKS), NUM_BLOCKS)
    slices, keys, values, queries, slots = [], [], [], [], []
    for index, (start, length) in enumerate(parts):
        end = start + length
        held = [blocks.pop() for _ in range(-(-end // BLOCK_TOKENS))]
        sequence = Sequence(str(index), [1] * end, end, SAMPLING, end + 1, 1e9, start)
        sequence.block_ids = held
        slices.append(Slice(sequence, start, length))
        keys.append(random_rows(spec.num_heads, end, spec.key_dim))
        own_values = random_rows(spec.num_heads, end, spec.value_dim)
        values.append(keys[-1][..., : spec.value_dim] if spec.is_latent else own_values)
        queries.append(random_rows(QUERY_HEADS, length, spec.key_dim))
        own = [held[at // BLOCK_TOKENS] * BLOCK_TOKENS + at % BLOCK_TOKENS for at in range(end)]
        if start:
            before = torch.tensor(own[:start])
            earlier = None if spec.is_latent else values[-1][:, :start]
            cache.write(0, before, keys[-1][:, :start], earlier)
        slots += own[start:]
    shape = (spec.num_heads, len(blocks) * BLOCK_TOKENS, spec.key_dim)
    foreign = torch.full(shape, content, dtype=dtype)
    places = torch.tensor(
        [block * BLOCK_TOKENS + offset for block in blocks for offset in range(BLOCK_TOKENS)]
    )
    cache.write(0, places, foreign, None if spec.is_latent else foreign)
    places = torch.tensor(slots)
    attention = build_attention(cache, places, slices, dtype)
    return Case(slices, keys, values, queries, cache, places, attention)


SPECS = [pytest.param(GROUPED, id="grouped"), pytest.param(LATENT, id="latent")]
CASES = [
    pytest.param([(0, 5)], id="one prompt"),
    pytest.param([(9, 1)], id="one next token"),
    pytest.param([(3, 1), (3, 1)], id="equal contexts"),
    pytest.param([(0, 1), (2, 1), (7, 1), (30, 1)], id="unequal contexts"),
    pytest.param([(6, 5)], id="a later chunk"),
    pytest.param([(1, 1), (11, 1), (0, 7), (4, 9), (13, 2)], id="all together"),
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("parts", CASES)
def test_packed_attention_equals_the_reference(parts: list[tuple[int, int]], spec: LayerKv) -> None:
    case = make_case(parts, spec=spec)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("parts", CASES)
def test_what_others_left_in_their_blocks_has_no_effect(
    parts: list[tuple[int, int]], spec: LayerKv
) -> None:
    case = make_case(parts, content=float("nan"), spec=spec)
    torch.testing.assert_close(case.run(), case.expected(), rtol=1e-5, atol=2e-6)


def test_very_unequal_contexts_are_computed_apart() -> None:
    case = make_case([(3, 1), (40, 1), (330, 1)])
    assert isinstance(case.attention, PackedAttention)
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


@pytest.mark.parametrize("spec", SPECS)
def test_zeroed_blocks_hold_zeros_and_others_stay(spec: LayerKv) -> None:
    case = make_case([(8, 1), (7, 1)], spec=spec)
    first, second = (torch.tensor([piece.sequence.block_ids]) for piece in case.slices)
    case.run()
    before = case.cache.read(0, second)
    case.cache.zero(first[0])
    assert all(not each.any() for each in case.cache.read(0, first))
    assert all(map(torch.equal, case.cache.read(0, second), before))


def test_latent_layers_store_keys_once() -> None:
    assert (GROUPED.num_stored, LATENT.num_stored) == (64, 20)
    case = make_case([(8, 1)], spec=LATENT)
    keys, values = case.cache.read(0, torch.tensor([case.slices[0].sequence.block_ids]))
    assert keys is values


def test_forgotten_values_are_noticed() -> None:
    case = make_case([(8, 1)])
    with pytest.raises(AssertionError, match="latent"):
        case.attention.attend(0, case.queries[0], case.keys[0][:, -1:], None, SCALE)
