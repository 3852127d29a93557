"""Attention of a step by the kernel in C, which reads keys and values where they lie."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.families.decoder import Attention, Decoder
from workers.language.attention import KvCache
from workers.language.scheduler import Slice
from workers.native.attention import SEGMENT, AttentionKernel, Segments, why_not
from workers.native.library import NoKernel, load
from workers.native.rows import RowKernel


def why_not_native(decoder: Decoder) -> str:
    """Why a decoder's attention is not for the kernel; empty if it is."""
    if (decoder.device.type, decoder.dtype) != ("cpu", torch.bfloat16):
        return f"it computes bfloat16 on a cpu; here is {decoder.dtype} on {decoder.device.type}"
    for layer in decoder.kv_spec:
        if layer.is_latent or layer.key_dim != layer.value_dim:
            return "it serves values as long as keys, and no latent layers"
        if reason := why_not(layer.key_dim):
            return reason
    try:
        load()
    except NoKernel as error:
        return str(error)
    return ""


class NativePath:
    """Like `workers.language.inputs.build_attention`, for the kernel."""

    def __init__(self) -> None:
        """Load the kernels.

        Raises:
            NoKernel: they cannot be had; see `why_not_native`.
        """
        self._kernel = AttentionKernel()
        self._rows = RowKernel()

    def __call__(self, cache: KvCache, slots: Tensor, slices: list[Slice], _: object) -> Attention:
        """See `build_attention`."""
        size = cache.block_tokens
        counts = [-(-piece.end // size) for piece in slices]
        blocks = np.concatenate(
            [piece.sequence.block_ids[:count] for piece, count in zip(slices, counts, strict=True)]
        ).astype(np.int64)
        lengths = np.array([piece.length for piece in slices])
        segments = np.zeros(len(slices), SEGMENT)
        segments["first_row"] = lengths.cumsum() - lengths
        segments["num_rows"] = lengths
        segments["num_keys"] = [piece.end for piece in slices]
        segments["num_seen"] = [piece.start + 1 for piece in slices]
        firsts = np.cumsum(counts) - counts
        segments["blocks"] = blocks.ctypes.data + firsts.astype(np.uint64) * blocks.itemsize
        return NativeAttention(self._kernel, self._rows, cache, slots, segments, blocks)


@dataclass(frozen=True, slots=True)
class NativeAttention:
    """See `workers.families.decoder.Attention`."""

    kernel: AttentionKernel
    rows: RowKernel
    cache: KvCache
    slots: Tensor  # [tokens], int64
    segments: Segments  # a sequence each
    blocks: np.ndarray[tuple[int], np.dtype[np.int64]]  # theirs; the segments point into it

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None, scale: float
    ) -> Tensor:
        """Keep the new keys and values of `layer`, then attend, causally per sequence."""
        assert value is not None, "latent layers are not served"
        keys, values = self.cache.stores(layer)
        self.rows.keep(keys, self.slots, key.transpose(0, 1))
        self.rows.keep(values, self.slots, value.transpose(0, 1))
        return self.kernel.attend(
            query, keys, values, self.segments, scale, self.cache.block_tokens
        )
