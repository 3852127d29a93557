"""Attention with rounded scores: how far it is off, and where it is taken."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.families import tower
from workers.families.tower import ROUNDED_PATCHES, ROUNDED_WIDTH, Run, attend_rounded


def parts(num_heads: int, num_patches: int, width: int, spread: float) -> list[Tensor]:
    """Queries, keys and values in bfloat16, whose scores have a standard deviation of `spread`."""
    generator = torch.Generator().manual_seed(num_patches)
    made = [torch.randn(num_heads, num_patches, width, generator=generator) for _ in range(3)]
    return [(each * scale).bfloat16() for each, scale in zip(made, (spread, 1, 1), strict=True)]


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize(
    ("spread", "most"), [(0.3, 1.5), (1.0, 1.7), (3.0, 2.3), (8.0, 2.5), (30.0, 6.0)]
)
@pytest.mark.parametrize(("num_patches", "width"), [(600, 64), (523, 80)])
def test_rounded_scores_are_off_by_little_more_than_torchs(
    num_patches: int, width: int, spread: float, most: float
) -> None:
    queries, keys, values = parts(3, num_patches, width, spread)
    exact = scaled_dot_product_attention(queries.double(), keys.double(), values.double())
    torchs = error(scaled_dot_product_attention(queries, keys, values), exact)
    ours = error(attend_rounded(queries, keys, values), exact)
    assert ours < most * torchs, ours / torchs


def test_control_without_the_largest_taken_away_it_is_off_by_far(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queries, keys, values = parts(3, 600, 64, 8.0)
    exact = scaled_dot_product_attention(queries.double(), keys.double(), values.double())
    ours = error(attend_rounded(queries, keys, values), exact)
    monkeypatch.setattr(Tensor, "amax", lambda scores, *_, **__: scores[..., :1] * 0)
    assert error(attend_rounded(queries, keys, values), exact) > 2 * ours


def test_scores_of_any_size_stay_finite() -> None:
    queries, keys, values = parts(2, 520, 64, 1e4)
    assert bool(attend_rounded(queries, keys, values).isfinite().all())


@pytest.mark.parametrize(
    ("length", "width", "dtype", "is_rounded"),
    [
        (ROUNDED_PATCHES, ROUNDED_WIDTH, torch.bfloat16, True),
        (ROUNDED_PATCHES - 4, ROUNDED_WIDTH, torch.bfloat16, False),
        (ROUNDED_PATCHES, ROUNDED_WIDTH // 2, torch.bfloat16, False),
        (ROUNDED_PATCHES, ROUNDED_WIDTH, torch.float32, False),
    ],
)
def test_only_long_segments_of_wide_heads_in_bfloat16_are_rounded(
    length: int, width: int, dtype: torch.dtype, is_rounded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def noting(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        calls.append(queries.shape[1])
        return attend_rounded(queries, keys, values)

    monkeypatch.setattr(tower, "attend_rounded", noting)
    by_head = torch.randn(3, 2, 3 + 2 * length, width).to(dtype)
    found = tower._attend(by_head, Run(3, 2, length))
    assert calls == [length, length] * is_rounded
    queries, keys, values = by_head[:, :, 3:].reshape(3, 2, 2, length, width).transpose(1, 2)
    mixed = scaled_dot_product_attention(queries, keys, values)
    expected = mixed.transpose(1, 2).reshape(2 * length, -1)
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)
