"""Turning queries and keys by their place: each number with the one half a head on."""

from typing import Protocol

import torch
from torch import Tensor

from workers.native.rows import RowKernel, serves


class Rotation(Protocol):
    """The angles of a step's tokens."""

    def turn(self, heads: Tensor) -> Tensor:
        """Turn [tokens, heads, head width]; what is handed over may be changed in place."""
        ...


class Rotations:
    """Makes the rotations of one model."""

    def __init__(self, weight: Tensor) -> None:
        """`weight` is of the type and on the device that heads have."""
        self._kernel = RowKernel() if serves(weight) else None
        dtype = weight.dtype if self._kernel is None else torch.float32
        self.like = torch.empty(0, dtype=dtype, device=weight.device)  # what tables have to be like

    def of(self, cosines: Tensor, sines: Tensor) -> Rotation:
        """Of the library's tables [tokens, head width], whose halves are equal."""
        if self._kernel is not None:
            return NativeRotation(self._kernel, cosines, sines)
        return PlainRotation(cosines, sines)


class PlainRotation:
    """In the type of the heads, as the library does it."""

    def __init__(self, cosines: Tensor, sines: Tensor) -> None:
        """See `Rotations.of`."""
        first, second = sines.chunk(2, dim=-1)
        self._cosines = cosines[:, None]
        self._sines = torch.cat([-first, second], dim=-1)[:, None]

    def turn(self, heads: Tensor) -> Tensor:
        """See `Rotation.turn`."""
        across = heads.roll(heads.shape[-1] // 2, dims=-1)
        return (heads * self._cosines).addcmul_(across, self._sines)


class NativeRotation:
    """In place, in float32, rounded once."""

    def __init__(self, kernel: RowKernel, cosines: Tensor, sines: Tensor) -> None:
        """See `Rotations.of`; tables are float32."""
        self._kernel = kernel
        self._cosines, self._sines = cosines, sines

    def turn(self, heads: Tensor) -> Tensor:
        """See `Rotation.turn`."""
        self._kernel.rotate(heads, self._cosines, self._sines)
        return heads
