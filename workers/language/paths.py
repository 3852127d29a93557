"""A decoder and a wish in, the way that its attention is computed out.

Every way is a function like `build_attention`: the slices of a step in, their attention out.
torch's runs everywhere. FlashInfer's, on a GPU, and ours in C, on a CPU, read blocks where they
lie, where torch's copies them out.
"""

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from workers.families.decoder import Attention, Decoder
from workers.language.attention import KvCache
from workers.language.inputs import AttentionPath, build_attention
from workers.language.native import NativePath, why_not_native
from workers.language.scheduler import Slice

PathName = Literal["auto", "torch", "flashinfer", "native"]

LEAST_CAPABILITY = (8, 0)
HEAD_WIDTHS = (64, 128, 256)
WORKSPACE_BYTES = 128 << 20  # what FlashInfer's documentation takes


class NoSuchPath(Exception):
    """The way that was asked for cannot be had; the message says why."""


def choose_path(wanted: PathName, decoder: Decoder) -> AttentionPath:
    """The attention of one engine; auto takes the kernel of its device where it can be had.

    Raises:
        NoSuchPath: a way was asked for that cannot be had.
    """
    reasons = {
        "flashinfer": _why_not_flashinfer(decoder),
        "native": why_not_native(decoder),
        "torch": "",
    }
    if wanted != "auto" and reasons[wanted]:
        raise NoSuchPath(f"attention by {wanted} cannot be had: {reasons[wanted]}")
    chosen = wanted if wanted != "auto" else next(name for name in reasons if not reasons[name])
    if chosen == "flashinfer":
        return FlashInferPath(decoder, import_module("flashinfer"))
    return NativePath() if chosen == "native" else build_attention


def _why_not_flashinfer(decoder: Decoder) -> str:
    device, layers = decoder.device, set(decoder.kv_spec)
    if device.type != "cuda":
        return f"the engine runs on {device.type}"
    if find_spec("flashinfer") is None:
        return "the package flashinfer-python is not installed"
    if torch.cuda.get_device_capability(device) < LEAST_CAPABILITY:
        return f"the device is older than compute capability {LEAST_CAPABILITY}"
    if decoder.dtype not in (torch.bfloat16, torch.float16):
        return f"the model is computed in {decoder.dtype}"
    shapes = {(layer.is_latent, layer.key_dim, layer.value_dim) for layer in layers}
    if len(layers) != 1 or shapes - {(False, width, width) for width in HEAD_WIDTHS}:
        return f"it serves heads of {HEAD_WIDTHS} numbers, equal in all layers; here are {shapes}"
    return ""


class FlashInferPath:
    """Attention of whole steps by one call a layer; no GPU has run it yet. Owned by the engine."""

    def __init__(self, decoder: Decoder, library: Any) -> None:
        """`library` is the module flashinfer."""
        workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=decoder.device)
        self._wrapper = library.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND")

    def __call__(
        self, cache: KvCache, slots: Tensor, slices: list[Slice], dtype: torch.dtype
    ) -> Attention:
        """See `build_attention`."""
        size = cache.block_tokens
        blocks = [piece.sequence.block_ids[: -(-piece.end // size)] for piece in slices]
        return PagedAttention(
            cache=cache,
            slots=slots,
            wrapper=self._wrapper,
            row_ends=_ends([piece.length for piece in slices]),
            block_ends=_ends([len(each) for each in blocks]),
            blocks=torch.from_numpy(np.concatenate(blocks).astype(np.int32)).to(slots.device),
            last_tokens=torch.tensor(
                [(piece.end - 1) % size + 1 for piece in slices], dtype=torch.int32
            ),
        )


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """See `workers.families.decoder.Attention`; layers have to come in order, from the first."""

    cache: KvCache
    slots: Tensor  # [tokens], int64, on the device
    wrapper: Any  # FlashInfer's
    row_ends: Tensor  # [sequences + 1], int32, from 0 on, on the host like all of the plan
    block_ends: Tensor  # [sequences + 1], int32, from 0 on
    blocks: Tensor  # [all blocks], int32, on the device; those of each sequence in order
    last_tokens: Tensor  # [sequences], int32; tokens in each last block

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None, scale: float
    ) -> Tensor:
        """Keep the new keys and values of `layer`, then attend, causally per sequence."""
        self.cache.write(layer, self.slots, key, value)
        if layer == 0:
            self._plan(query, len(key), scale)
        output: Tensor = self.wrapper.run(
            query.transpose(0, 1).contiguous(), self.cache.pages(layer)
        )
        return output

    def _plan(self, query: Tensor, num_heads: int, scale: float) -> None:
        """What FlashInfer works out once for all layers, which are alike."""
        self.wrapper.plan(
            self.row_ends,
            self.block_ends,
            self.blocks,
            self.last_tokens,
            len(query),
            num_heads,
            query.shape[-1],
            self.cache.block_tokens,
            causal=True,  # the last row of a sequence sees all of it
            sm_scale=scale,
            q_data_type=query.dtype,
            kv_data_type=query.dtype,
        )


def _ends(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int32)
