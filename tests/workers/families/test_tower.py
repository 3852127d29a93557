"""A tower's attention: by the kernel and by torch, over segments of many lengths."""

import copy

import pytest
import torch
from torch import Tensor, nn

from workers.families.tower import TowerAttention, runs_of, segments_of
from workers.native.library import NoKernel, load

LENGTHS = [16, 16, 4, 600, 16, 130]
NUM_HEADS, WIDTH = 3, 24


def attention(seed: int = 0) -> TowerAttention:
    torch.manual_seed(seed)
    qkv = nn.Linear(NUM_HEADS * WIDTH, 3 * NUM_HEADS * WIDTH)
    return TowerAttention(qkv, nn.Linear(NUM_HEADS * WIDTH, NUM_HEADS * WIDTH), NUM_HEADS)


def rounded(module: TowerAttention) -> TowerAttention:
    """The same weights in bfloat16, with the kernel where there is one."""
    half = copy.deepcopy(module).bfloat16()
    return TowerAttention(half.qkv, half.proj, NUM_HEADS)


def rotation(num_patches: int) -> tuple[Tensor, Tensor]:
    angles = torch.rand(num_patches, WIDTH // 2).repeat(1, 2) * 3
    return angles.cos(), angles.sin()


def test_segments_that_are_equal_share_a_run() -> None:
    runs = runs_of(LENGTHS)
    assert [(run.start, run.count, run.length) for run in runs] == [
        (0, 2, 16),
        (32, 1, 4),
        (36, 1, 600),
        (636, 1, 16),
        (652, 1, 130),
    ]
    segments = segments_of(runs)
    assert segments["num_rows"].tolist() == LENGTHS
    assert segments["first_row"].tolist() == [0, 16, 32, 36, 636, 652]


@torch.inference_mode()
def test_the_kernel_comes_nearer_to_float32_than_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        load()
    except NoKernel as error:
        pytest.skip(str(error))
    exact, hidden = attention(), torch.randn(sum(LENGTHS), NUM_HEADS * WIDTH)
    turns = rotation(len(hidden))
    expected = exact(hidden, runs_of(LENGTHS), turns)
    by_kernel = rounded(exact)(hidden.bfloat16(), runs_of(LENGTHS), turns)
    monkeypatch.setattr("workers.families.tower.serves", lambda _: False)
    by_torch = rounded(exact)(hidden.bfloat16(), runs_of(LENGTHS), turns)
    assert not torch.equal(by_kernel, by_torch)
    theirs = (by_torch - expected).norm()
    assert (by_kernel - expected).norm() < 1.02 * theirs < 0.01 * expected.norm()


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_segment_alone_gives_what_it_gives_among_others(dtype: torch.dtype) -> None:
    module = attention() if dtype == torch.float32 else rounded(attention())
    hidden = torch.randn(sum(LENGTHS), NUM_HEADS * WIDTH).to(dtype)
    turns = rotation(len(hidden))
    together, start = module(hidden, runs_of(LENGTHS), turns), 0
    for length in LENGTHS:
        part = slice(start, start + length)
        alone = module(hidden[part], runs_of([length]), (turns[0][part], turns[1][part]))
        torch.testing.assert_close(together[part], alone, rtol=2e-2, atol=1e-3)
        start += length
