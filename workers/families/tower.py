"""Layers of vision towers as we compute them: the library's weights in fewer and larger steps."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from workers.native.attention import SEGMENT, AttentionKernel, Segments, why_not
from workers.native.rows import RowKernel, serves

Rotation = tuple[Tensor, Tensor]  # cosines and sines, each float32 [patches, head width]


@dataclass(frozen=True, slots=True)
class Run:
    """Patches [start, start + count * length): `count` segments that attend to themselves only."""

    start: int
    count: int
    length: int


def runs_of(lengths: Iterable[int]) -> tuple[Run, ...]:
    """Join neighbours of equal length in a row of segments that covers all patches of a pass."""
    runs: list[Run] = []
    start = 0
    for length, equal in itertools.groupby(lengths):
        run = Run(start, len(list(equal)), length)
        runs.append(run)
        start += run.count * length
    return tuple(runs)


class PatchEmbedding(nn.Module):
    """The tower's first layer as one matrix product.

    The library has a convolution whose stride is its kernel, on patches of just that size. That
    is the same sum, but as a convolution it took 7.1 ms where this takes 1.8 (364 patches of the
    demo model, one CPU thread: a fifth of all encoding).
    """

    def __init__(self, convolution: nn.Conv2d | nn.Conv3d) -> None:
        super().__init__()
        self.weight = nn.Parameter(convolution.weight.flatten(1), requires_grad=False)
        self.bias = convolution.bias

    def forward(self, patches: Tensor) -> Tensor:
        """[patches, values per patch] -> [patches, width of the tower]."""
        return nn.functional.linear(patches, self.weight, self.bias)


class TowerAttention(nn.Module):
    """A block's attention with the library's arithmetic; equal segments of a pass in one call."""

    def __init__(self, qkv: nn.Linear, proj: nn.Linear, num_heads: int) -> None:
        """Take over the library's layers: queries, keys and values in one, and the output's."""
        super().__init__()
        self.qkv = qkv
        self.proj = proj
        self.num_heads = num_heads
        width = proj.weight.shape[1] // num_heads
        is_native = serves(proj.weight) and not why_not(width)
        self._native = NativeSegments() if is_native else None

    def forward(
        self,
        hidden_states: Tensor,
        cu_seqlens: tuple[Run, ...],
        position_embeddings: Rotation,
        **_: Any,
    ) -> Tensor:
        """[patches, width] -> [patches, width]; the names of the parameters are the library's.

        Args:
            hidden_states: [patches, width].
            cu_seqlens: the segments, which the tower hands on without looking at them.
            position_embeddings: see `Rotation`; both halves of each are equal.
        """
        projected = self.qkv(hidden_states).unflatten(-1, (3, self.num_heads, -1))
        attend = _attend if self._native is None else self._native.attend
        output: Tensor = self.proj(attend(projected, position_embeddings, cu_seqlens))
        return output


class NativeSegments:
    """The attention by the kernels in C, which need no other layout than the product's."""

    def __init__(self) -> None:
        """Load them.

        Raises:
            NoKernel: they cannot be had.
        """
        self._rows = RowKernel()
        self._kernel = AttentionKernel()

    def attend(self, projected: Tensor, rotation: Rotation, runs: tuple[Run, ...]) -> Tensor:
        """[patches, 3, heads, head width], changed in place -> [patches, width]."""
        self._rows.rotate(projected[:, :2].flatten(1, 2), *rotation)
        queries, keys, values = projected.permute(1, 2, 0, 3).unbind()
        scale = projected.shape[-1] ** -0.5
        return self._kernel.attend(queries, keys, values, segments_of(runs), scale).flatten(1)


def _attend(projected: Tensor, rotation: Rotation, runs: tuple[Run, ...]) -> Tensor:
    """The attention by torch: [patches, 3, heads, head width] -> [patches, width]."""
    by_head = _by_head(projected, rotation)
    mixed = [_attend_run(by_head, run) for run in runs]
    return torch.cat(mixed) if len(mixed) > 1 else mixed[0]


def _by_head(projected: Tensor, rotation: Rotation) -> Tensor:
    """Queries and keys, turned by their place, and values, laid out as torch reads them fast.

    [patches, 3, heads, head width] -> contiguous [3, heads, patches, head width]. As the library
    does, it turns in float32; in place, because fresh memory costs more than the arithmetic.
    """
    by_head = projected.permute(1, 2, 0, 3).contiguous()
    cosines, sines = (table.chunk(2, dim=-1)[0] for table in rotation)
    turned = by_head[:2].float()
    first, second = turned.chunk(2, dim=-1)
    across = first * sines
    first.mul_(cosines).addcmul_(second, sines, value=-1)
    second.mul_(cosines).add_(across)
    by_head[:2] = turned
    return by_head


def _attend_run(by_head: Tensor, run: Run) -> Tensor:
    """Queries, keys and values of a whole pass, see `_by_head` -> [patches of `run`, width]."""
    _, num_heads, _, head_width = by_head.shape
    patches = by_head.narrow(2, run.start, run.count * run.length)
    segments = patches.view(3, num_heads, run.count, run.length, head_width)
    queries, keys, values = segments.transpose(1, 2)
    mixed = nn.functional.scaled_dot_product_attention(queries, keys, values)
    return mixed.transpose(1, 2).reshape(run.count * run.length, -1)


def segments_of(runs: Sequence[Run]) -> Segments:
    """The segments of all runs, as the kernel wants them: each sees all of itself."""
    lengths = np.repeat([run.length for run in runs], [run.count for run in runs])
    segments = np.zeros(len(lengths), SEGMENT)
    segments["first_row"] = segments["first_key"] = lengths.cumsum() - lengths
    segments["num_rows"] = segments["num_keys"] = segments["num_seen"] = lengths
    return segments
