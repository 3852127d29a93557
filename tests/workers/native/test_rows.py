"""Small steps on rows in C against torch's arithmetic in float64, and what they must not touch."""

import pytest
import torch
from torch import Tensor

from workers.native.rows import RowKernel

# Tokens, heads, width, of which the heads from the second on are used: strides of their own.
SHAPES = [(1, 3, 64), (17, 5, 34), (40, 2, 128), (5, 3, 2), (3, 2, 520)]


def made(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(shape[-1])).bfloat16()


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("floor", [1e-6, 0.5])
def test_norms_are_exact_but_for_one_rounding(
    row_kernel: RowKernel, shape: tuple[int, int, int], floor: float
) -> None:
    all_heads, weight = made(*shape) * 3, made(shape[-1])
    rows = all_heads[:, 1:]
    found = row_kernel.normalise(rows, weight, floor)
    exact = rows.double()
    scale = (exact.square().mean(-1, keepdim=True) + floor).rsqrt()
    expected = exact * scale * weight.double()
    torch.testing.assert_close(found, expected.bfloat16(), rtol=2**-7, atol=0)
    assert error(found, expected) <= 1.01 * error(expected.bfloat16(), expected)


def test_plain_rows_are_normed_like_one_head(row_kernel: RowKernel) -> None:
    rows, weight = made(33, 256), made(256)
    by_head = row_kernel.normalise(rows[:, None], weight, 1e-6)[:, 0]
    assert torch.equal(row_kernel.normalise(rows, weight, 1e-6), by_head)


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_turned_in_place_and_their_neighbours_are_not(
    row_kernel: RowKernel, shape: tuple[int, int, int]
) -> None:
    tokens, _, width = shape
    all_heads = made(*shape)
    before = all_heads.clone()
    angles = torch.rand(tokens, width // 2).repeat(1, 2) * 7
    row_kernel.rotate(all_heads[:, 1:], angles.cos(), angles.sin())
    first, second = before[:, 1:].double().chunk(2, dim=-1)
    cosines, sines = (
        table[:, None, : width // 2].double() for table in (angles.cos(), angles.sin())
    )
    expected = torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)
    assert error(all_heads[:, 1:], expected) <= 1.01 * error(expected.bfloat16(), expected)
    assert torch.equal(all_heads[:, 0], before[:, 0])


def test_rows_go_to_their_places_in_a_store(row_kernel: RowKernel) -> None:
    heads = made(4, 5, 6)
    store = torch.full((2, 9, 6), float("nan")).bfloat16()
    places = torch.tensor([7, 0, 3, 8])
    row_kernel.keep(store, places, heads[:, 3:])
    assert torch.equal(store[:, places], heads[:, 3:].transpose(0, 1))
    untouched = [1, 2, 4, 5, 6]
    assert bool(store[:, untouched].isnan().all())


def test_threads_change_nothing(row_kernel: RowKernel) -> None:
    rows, weight = made(3000, 4, 128), made(128)
    angles = torch.rand(3000, 128)
    before = torch.get_num_threads()
    results = []
    try:
        for number in (1, 4):
            torch.set_num_threads(number)
            turned = rows.clone()
            row_kernel.rotate(turned, angles.cos(), angles.sin())
            results.append((row_kernel.normalise(rows, weight, 1e-6), turned))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])
