"""Products with the weights of a model: plain ones, and for bfloat16 on a CPU packed ones.

Of these there are two: ours in C, and oneDNN's where that is not there.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from workers.native.products import NativeProduct, packs
from workers.native.rows import serves


class Product(nn.Module):
    """x -> x @ weight.T + bias, alone or with the step that comes after it.

    Stands in for the library's linear layers, with their arithmetic.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Take over a weight [out, in] and a bias [out]."""
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return linear(x, self.weight, self.bias)

    def silu(self, x: Tensor) -> Tensor:
        """The product's SiLU: y * sigmoid(y)."""
        return silu(self(x))

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, times `other` number by number."""
        product: Tensor = self(x)
        return product * other

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, added to `other`."""
        product: Tensor = self(x)
        return other + product


class PackedProduct(nn.Module):
    """A `Product` whose weight lies as oneDNN reads it, and whose next step is part of it.

    Given a plain weight oneDNN lays it out anew in every call, which costs a third of a product
    of a few rows: 17 products of 16 rows took 2.4 ms and 1.6 ms packed (weights of 8 MB that were
    not in the nearest cache, one thread). Products are equal to plain ones bit by bit; the step
    after one takes it unrounded, so it comes nearer to float32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Pack a bfloat16 weight [out, in], which is not needed afterwards; take over the bias."""
        super().__init__()
        self._weight: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self._bias = bias

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]; without what torch does around `forward`, which takes time."""
        return self._alone(x, "none")

    def silu(self, x: Tensor) -> Tensor:
        """See `Product.silu`."""
        return self._alone(x, "swish")

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """See `Product.times`."""
        return self._joined(x, other, "mul")

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """See `Product.plus`."""
        return self._joined(x, other, "add")

    def _alone(self, x: Tensor, step: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise.default(
            x, self._weight, self._bias, step, [], ""
        )
        return result

    def _joined(self, x: Tensor, other: Tensor, step: str) -> Tensor:
        result: Tensor = torch.ops.mkldnn._linear_pointwise.binary(
            x, other, self._weight, self._bias, step
        )
        return result


def product_of(*layers: nn.Linear) -> Product | PackedProduct | NativeProduct:
    """One product for layers that read the same input, in order; made for their device."""
    weight = layers[0].weight if len(layers) == 1 else torch.cat([each.weight for each in layers])
    biases = [each.bias.detach() for each in layers if each.bias is not None]
    bias = torch.cat(biases) if biases else None
    kind = _kind_for(weight)
    return Product(weight.detach(), bias) if kind is None else kind(weight, bias)


class GatedMlp(nn.Module):
    """The library's of two products, the SiLU of one gating the other, and a third of theirs."""

    def __init__(self, mlp: Any) -> None:
        """Take over the library's."""
        super().__init__()
        self.gate = product_of(mlp.gate_proj)
        self.up = product_of(mlp.up_proj)
        self.down = product_of(mlp.down_proj)

    def forward(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        output: Tensor = self.down(self.up.times(x, self.gate.silu(x)))
        return output


def pack_layers(model: nn.Module, kept: Iterable[str] = ()) -> None:
    """Put packed products in the place of linear layers, except those of the names in `kept`.

    Does nothing where packing is of no use.
    """
    for name, child in list(model.named_children()):
        if isinstance(child, nn.Linear) and _kind_for(child.weight) is not None:
            if name not in kept:
                setattr(model, name, product_of(child))
        else:
            pack_layers(child, kept)


def _kind_for(weight: Tensor) -> type[PackedProduct | NativeProduct] | None:
    """The quickest kind for a weight; None where packing is of no use."""
    if serves(weight) and packs(weight):
        return NativeProduct
    is_packed = (weight.device.type, weight.dtype) == ("cpu", torch.bfloat16)
    if is_packed and torch._C._has_mkldnn and torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return PackedProduct
    return None
