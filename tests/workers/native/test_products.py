"""Products in C against float64, and that rows have no part in each other's results."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import silu

from workers.families.products import pack_layers, product_of
from workers.native.products import COLUMNS, NativeProduct, packs

STEPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "silu": lambda y, _: silu(y),
    "times": lambda y, other: y * other,
    "plus": lambda y, other: y + other,
}
# Rows, in, out: tails of rows, of columns and of registers, and more rows than an item has.
SHAPES = [(0, 48, 80), (1, 2, 1), (7, 48, 80), (8, 64, COLUMNS), (15, 30, 49), (1100, 34, 17)]


def made(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).bfloat16()


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("has_bias", [False, True])
def test_products_are_exact_but_for_one_rounding(
    shape: tuple[int, int, int], has_bias: bool
) -> None:
    num_rows, num_in, num_out = shape
    x, weight, other = (
        made(num_rows, num_in),
        made(num_out, num_in, seed=1),
        made(num_rows, num_out),
    )
    bias = made(num_out, seed=2) if has_bias else None
    product = NativeProduct(weight, bias)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    found = {"alone": product(x), "silu": product.silu(x)}
    found |= {name: getattr(product, name)(x, other) for name in ("times", "plus")}
    for name, result in found.items():
        expected = STEPS[name](exact, other.double()) if name in STEPS else exact
        assert result.shape == expected.shape
        if num_rows:
            assert error(result, expected) <= 1.01 * error(expected.bfloat16(), expected), name


def test_rows_may_lie_apart_and_on_more_axes() -> None:
    product = NativeProduct(made(20, 48), None)
    wide = made(6, 96, seed=3)
    assert torch.equal(product(wide[:, 48:]), product(wide[:, 48:].contiguous()))
    assert torch.equal(product(wide.view(2, 3, 96)[..., :48]).flatten(0, 1), product(wide[:, :48]))


def test_a_row_gives_the_same_bits_whatever_comes_along() -> None:
    product, rows = NativeProduct(made(100, 200), made(100)), made(1030, 200, seed=4)
    together = product.silu(rows)
    for number in (1, 2, 3, 5, 9, 600):
        assert torch.equal(product.silu(rows[7 : 7 + number]), together[7 : 7 + number])


def test_threads_change_nothing() -> None:
    product, rows = NativeProduct(made(300, 512), None), made(700, 512, seed=5)
    before, results = torch.get_num_threads(), []
    try:
        for number in (1, 4):
            torch.set_num_threads(number)
            results.append(product(rows))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])


def test_control_another_weight_or_bias_is_seen() -> None:
    rows, weight, bias = made(9, 48), made(50, 48, seed=1), made(50, seed=2)
    right = NativeProduct(weight, bias)(rows)
    wrong = weight.clone()
    wrong[49, 47] += 1
    changed = NativeProduct(wrong, bias)(rows) != right
    assert bool(changed[:, 49].all())
    assert not bool(changed[:, :49].any())


def test_layers_in_bfloat16_become_native_ones() -> None:
    even, odd = nn.Linear(8, 6).bfloat16(), nn.Linear(7, 6).bfloat16()
    model = nn.Sequential(even, odd)
    assert isinstance(product_of(even), NativeProduct)
    assert not packs(odd.weight)
    assert not isinstance(product_of(odd), NativeProduct)
    pack_layers(model, kept=("1",))
    assert isinstance(model[0], NativeProduct)
    assert isinstance(model[1], nn.Linear)
