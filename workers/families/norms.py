"""Norms by the root of the mean of squares: the library's, in fewer and larger steps."""

from typing import Any

import torch
from torch import Tensor, nn

from workers.native.rows import RowKernel, serves


class RootMeanSquareNorm:
    """The library's norm of the same name, in five operations instead of eight."""

    def __init__(self, norm: Any) -> None:
        """Take over the library's."""
        self._weight: Tensor = norm.weight.detach()
        self._share = 1 / self._weight.shape[-1]
        self._floor = torch.full((), norm.variance_epsilon, device=self._weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        """[..., width] -> [..., width]; computed in float32 and rounded like the library's."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = torch.addcmul(self._floor, length, length, value=self._share).rsqrt_()
        return torch.mul(x, scale, out=torch.empty_like(x)).mul_(self._weight)


class NativeNorm(nn.Module):
    """The same in one step, rounded once; a module, so that it can take the library's place."""

    def __init__(self, norm: Any) -> None:
        """Take over the library's."""
        super().__init__()
        self._weight: Tensor = norm.weight.detach()
        self._floor: float = norm.variance_epsilon
        self._kernel = RowKernel()

    def __call__(self, x: Tensor) -> Tensor:
        """[tokens, width] or [tokens, heads, width] -> new ones, of any strides but the last."""
        return self._kernel.normalise(x, self._weight, self._floor)


def norm_of(norm: Any) -> RootMeanSquareNorm | NativeNorm:
    """The quickest that there is for the device and the type of a norm of the library's."""
    return NativeNorm(norm) if serves(norm.weight) else RootMeanSquareNorm(norm)


def pack_norms(model: nn.Module) -> None:
    """Put native norms in the place of the library's, where they serve."""
    children: list[tuple[str, Any]] = list(model.named_children())
    for name, child in children:
        if hasattr(child, "variance_epsilon") and serves(child.weight):
            setattr(model, name, NativeNorm(child))
        else:
            pack_norms(child)
