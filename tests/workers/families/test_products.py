"""Packed products against plain ones, and against float32."""

import pytest
import torch
from torch import Tensor, nn

from workers.families import products
from workers.families.products import PackedProduct, Product, pack_layers, product_of


@pytest.fixture
def _without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "serves", lambda _: False)


needs_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="oneDNN has no bfloat16 here"
)


def make_layer(num_in: int, num_out: int, bias: bool, dtype: torch.dtype, seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(num_in, num_out, bias=bias).to(dtype).requires_grad_(False)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


INPUTS = [
    pytest.param(numbers(0, 48), id="no row"),
    pytest.param(numbers(1, 48), id="one row"),
    pytest.param(numbers(70, 48), id="many rows"),
    pytest.param(numbers(1, 5, 48), id="three axes"),
    pytest.param(numbers(5, 96)[:, 48:], id="part of a row"),
]


@needs_bfloat16
@pytest.mark.usefixtures("_without_kernel")
@pytest.mark.parametrize("x", INPUTS)
@pytest.mark.parametrize("bias", [False, True])
def test_packed_products_equal_plain_ones_bit_by_bit(x: Tensor, bias: bool) -> None:
    layer = make_layer(48, 80, bias, torch.bfloat16, 1)
    product = product_of(layer)
    assert isinstance(product, PackedProduct)
    assert torch.equal(product(x), layer(x))


@needs_bfloat16
@pytest.mark.usefixtures("_without_kernel")
def test_a_step_inside_of_a_product_is_nearer_to_float32_than_one_behind_it() -> None:
    layer = make_layer(48, 80, True, torch.bfloat16, 2)
    packed, plain = product_of(layer), Product(layer.weight, layer.bias)
    exact = Product(layer.weight.float(), layer.bias.float())
    x, other = numbers(64, 48, seed=3), numbers(64, 80, seed=4)
    for name, arguments in (("silu", (x,)), ("times", (x, other)), ("plus", (x, other))):
        expected = getattr(exact, name)(*(each.float() for each in arguments))
        errors = [
            (getattr(each, name)(*arguments).float() - expected).abs().mean()
            for each in (packed, plain)
        ]
        assert 0 < errors[0] <= errors[1], name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_that_read_the_same_are_one_product(dtype: torch.dtype) -> None:
    layers = [make_layer(16, width, True, dtype, width) for width in (3, 5, 2)]
    x = numbers(7, 16, dtype=dtype)
    expected = torch.cat([layer(x) for layer in layers], dim=-1)
    torch.testing.assert_close(product_of(*layers)(x), expected)


def test_in_float32_nothing_is_packed() -> None:
    layer = make_layer(4, 4, False, torch.float32, 0)
    model = nn.Sequential(layer)
    pack_layers(model)
    assert model[0] is layer
    assert isinstance(product_of(layer), Product)


@needs_bfloat16
@pytest.mark.usefixtures("_without_kernel")
def test_layers_are_packed_wherever_they_are_but_for_those_named() -> None:
    inner = nn.Sequential(nn.GELU(), make_layer(4, 8, True, torch.bfloat16, 1))
    model = nn.ModuleDict({"kept": make_layer(4, 4, False, torch.bfloat16, 0), "inner": inner})
    x = numbers(3, 4)
    expected = inner(x)
    pack_layers(model, kept=("kept",))
    assert isinstance(model["kept"], nn.Linear)
    assert isinstance(inner[1], PackedProduct)
    assert torch.equal(inner(x), expected)
