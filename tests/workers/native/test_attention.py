"""The kernel in C against attention written out, and what it must not look at."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.language.attention import reference_attention
from workers.native.attention import SEGMENT, AttentionKernel, Segments, why_not

BLOCK_KEYS = 16
Places = np.ndarray[Any, np.dtype[np.int64]]


@dataclass
class Case:
    """Sequences of one step in the same stores: each has `seen` keys before its rows' own."""

    num_heads: int
    num_key_heads: int
    width: int
    parts: tuple[tuple[int, int], ...]  # keys before, rows
    content: float = float("nan")  # of places that are nobody's

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.width + len(self.parts))
        rows = sum(length for _, length in self.parts)
        ends = [before + length for before, length in self.parts]
        self.queries = self._random(generator, rows, self.num_heads) * 3
        counts = [-(-end // BLOCK_KEYS) for end in ends]
        order = torch.randperm(sum(counts) + 3, generator=generator).numpy()
        self.blocks = np.split(order, np.cumsum(counts))[:-1]
        shape = (self.num_key_heads, len(order) * BLOCK_KEYS, self.width)
        self.keys, self.values = (torch.full(shape, self.content).bfloat16() for _ in "kv")
        for blocks, end in zip(self.blocks, ends, strict=True):
            at = np.arange(end)
            self.keys[:, self.places(blocks, at)] = self._random(generator, end)
            self.values[:, self.places(blocks, at)] = self._random(generator, end)

    def _random(self, generator: torch.Generator, rows: int, heads: int = 0) -> Tensor:
        shape = (rows, heads or self.num_key_heads, self.width)
        return torch.randn(shape, generator=generator).bfloat16().transpose(0, 1)

    def places(self, blocks: Places, at: Places) -> Places:
        places: Places = blocks[at // BLOCK_KEYS] * BLOCK_KEYS + at % BLOCK_KEYS
        return places

    def segments(self) -> Segments:
        segments = np.zeros(len(self.parts), SEGMENT)
        first = 0
        for at, (before, length) in enumerate(self.parts):
            address = self.blocks[at].ctypes.data
            segments[at] = (first, length, before + length, before + 1, 0, address)
            first += length
        return segments

    def run(self, kernel: AttentionKernel) -> Tensor:
        scale = self.width**-0.5
        return kernel.attend(
            self.queries, self.keys, self.values, self.segments(), scale, BLOCK_KEYS
        )

    def expected(self) -> Tensor:
        outputs, first = [], 0
        for at, (before, length) in enumerate(self.parts):
            places = self.places(self.blocks[at], np.arange(before + length))
            rows = self.queries[:, first : first + length].double()
            keys, values = self.keys[:, places].double(), self.values[:, places].double()
            outputs.append(reference_attention(rows, keys, values, before, self.width**-0.5))
            first += length
        return torch.cat(outputs)


CASES = [
    pytest.param(Case(4, 4, 64, ((0, 100),)), id="a prompt longer than a block's rows"),
    pytest.param(Case(4, 2, 64, ((0, 481), (77, 130))), id="prompts, one of them cached in part"),
    pytest.param(Case(4, 1, 128, ((300, 1), (0, 1), (64, 1), (63, 1))), id="next tokens"),
    pytest.param(Case(12, 2, 72, ((77, 1), (5, 6))), id="six heads to a key head, odd width"),
    pytest.param(Case(5, 1, 64, ((129, 1), (1000, 250))), id="five heads, long context"),
    pytest.param(Case(2, 2, 256, ((9, 1), (9, 9))), id="the widest heads"),
    pytest.param(Case(3, 3, 34, ((20, 2), (15, 1), (0, 2))), id="width of no whole register"),
    pytest.param(Case(2, 1, 2, ((3, 3), (3, 1))), id="the narrowest heads"),
]


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("case", CASES)
def test_it_equals_the_reference_to_bfloat16s_rounding(kernel: AttentionKernel, case: Case) -> None:
    found, expected = case.run(kernel), case.expected()
    least = error(expected.bfloat16(), expected)  # what rounding the result alone is off
    assert least <= error(found, expected) < 2 * least
    assert found.shape == expected.shape


@pytest.mark.parametrize("spread", [0.1, 1.0, 8.0, 30.0])
@pytest.mark.parametrize("num_rows", [1, 300])
def test_it_is_off_no_more_than_torch(
    kernel: AttentionKernel, spread: float, num_rows: int
) -> None:
    case = Case(3, 3, 64, ((600 - num_rows, num_rows),))
    case.queries = (case.queries * (spread / 3)).bfloat16()
    expected = case.expected()
    places = case.places(case.blocks[0], np.arange(600))
    hidden = ~torch.ones(num_rows, 600, dtype=torch.bool).tril(600 - num_rows)
    mask = torch.zeros(num_rows, 600).masked_fill(hidden, -torch.inf).bfloat16()
    theirs = scaled_dot_product_attention(
        case.queries[None], case.keys[None, :, places], case.values[None, :, places], mask
    )[0].transpose(0, 1)
    assert error(case.run(kernel), expected) < 1.1 * error(theirs, expected)


def test_control_one_key_more_or_less_is_seen(kernel: AttentionKernel) -> None:
    for before in (7, 250):
        case = Case(4, 2, 64, ((before, 1), (before, 40)))
        right, segments = case.run(kernel), case.segments()
        segments["num_keys"][0] -= 1
        segments["num_seen"][1] -= 1
        wrong = kernel.attend(case.queries, case.keys, case.values, segments, 64**-0.5, BLOCK_KEYS)
        assert not (wrong == right).all(dim=(1, 2)).any()


def test_a_row_gives_the_same_bits_whatever_comes_along(kernel: AttentionKernel) -> None:
    case = Case(6, 2, 64, ((200, 1), (0, 150), (90, 1), (31, 7)))
    together, first = case.run(kernel), 0
    for at, (_, length) in enumerate(case.parts):
        segments = case.segments()[at : at + 1]
        segments["first_row"] = 0
        rows = case.queries[:, first : first + length]
        alone = kernel.attend(rows, case.keys, case.values, segments, 64**-0.5, BLOCK_KEYS)
        assert torch.equal(alone, together[first : first + length])
        first += length


def test_threads_change_nothing(kernel: AttentionKernel) -> None:
    case = Case(8, 4, 128, ((0, 700), (3000, 1), (900, 350)))
    before = torch.get_num_threads()
    try:
        results = []
        for number in (1, 2, 5):
            torch.set_num_threads(number)
            results.append(case.run(kernel))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_keys_that_follow_each_other_need_no_blocks(kernel: AttentionKernel) -> None:
    """Patches of images: each sees all of its segment, and nothing of its neighbours."""
    lengths = [64, 64, 17, 300]
    numbers = torch.randn(3, 4, sum(lengths), 80, generator=torch.Generator().manual_seed(1))
    numbers = numbers.bfloat16()
    segments = np.zeros(len(lengths), SEGMENT)
    segments["first_row"] = segments["first_key"] = np.cumsum(lengths) - lengths
    segments["num_rows"] = segments["num_keys"] = segments["num_seen"] = lengths
    queries, keys, values = numbers.unbind()
    found = kernel.attend(queries, keys, values, segments, 80**-0.5)
    parts = [each.split(lengths, dim=1) for each in numbers.double()]
    expected = torch.cat(
        [scaled_dot_product_attention(*part) for part in zip(*parts, strict=True)], 1
    )
    assert error(found, expected.transpose(0, 1)) < 4e-3


def test_scores_of_any_size_stay_finite(kernel: AttentionKernel) -> None:
    case = Case(2, 2, 64, ((0, 200), (199, 1)))
    case.queries = case.queries * 1e4
    assert bool(case.run(kernel).isfinite().all())


def test_what_it_does_not_serve_is_told() -> None:
    assert why_not(64) == ""
    assert "even" in why_not(63)
    assert "256" in why_not(258)
