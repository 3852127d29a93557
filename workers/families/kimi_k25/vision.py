"""The MoonViT tower with its projector: patches of several images in, embeddings per image out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import vision_utils
from transformers.models.kimi_k25.modeling_kimi_k25 import get_vision_temporal_merge_index

from workers.families.products import pack_layers
from workers.families.tower import PatchEmbedding, TowerAttention, runs_of
from workers.families.vision import Grid, PackedVision


class VisionModel(PackedVision):
    """A tower and a projector of transformers, fed with what they would else ask the device for.

    They are the library's own but for the first layer and the attention. Images attend only to
    themselves, so a batch never changes an answer: on CPU in float32 an image's embeddings alone
    and in company differ by less than 1e-5 of their size.
    """

    num_levels: int = 1  # no deepstack

    def __init__(self, tower: Any, projector: Any) -> None:
        """Take over the library's modules, loaded, on their device."""
        super().__init__(tower)
        weight: Tensor = projector.out_proj.weight
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype
        self.hidden_size: int = weight.shape[0]
        self.embedding_bytes_per_token: int = self.hidden_size * self.dtype.itemsize
        tower.patch_embed.proj = PatchEmbedding(tower.patch_embed.proj)
        for layer in tower.layers:
            layer.attn = _joined(layer.attn)
        pack_layers(tower)
        pack_layers(projector)
        self._tower = tower
        self._projector = projector

    @torch.inference_mode()
    def _encode(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        grid = torch.tensor(grids)
        output = self._tower(
            patches.to(self.dtype), grid_thw=grid, return_dict=True, **self._tables(grid)
        )
        embeddings = self._projector(output.pooler_output).transpose(0, 1)
        num_patches_per_token = output.pooler_output.shape[1]
        counts = (grid.prod(dim=1) // num_patches_per_token).tolist()
        return list(torch.split(embeddings, counts, dim=1))

    def _tables(self, grid: Tensor) -> dict[str, Any]:
        """What the tower derives from the grids, computed on the CPU.

        Left to itself it would compute these on its device and wait for them.
        """
        places = self._tower.patch_embed.pos_emb
        places_read, weights = vision_utils.get_vision_interpolation_indices_and_weights(
            grid,
            places.num_grid_per_side,
            mode=places.interpolation_mode,
            align_corners=places.interpolation_align_corners,
        )
        lengths: list[int] = grid.prod(dim=1).tolist()
        target, share, num_tokens = get_vision_temporal_merge_index(
            grid, *self._tower.merge_kernel_size
        )
        return {
            "position_ids": self._move(vision_utils.get_vision_position_ids(grid, 1)),
            "interp_indices": self._move(places_read),
            "interp_weights": self._move(weights),
            "frame_index": self._move(torch.zeros(sum(lengths), dtype=torch.int64)),
            "temporal_merge_index": (self._move(target), self._move(share), num_tokens),
            "cu_seqlens": runs_of(lengths),
        }

    def _move(self, table: Tensor) -> Tensor:
        return table.to(self.device, non_blocking=True)


def _joined(attention: Any) -> TowerAttention:
    """The library's attention, with its three projections computed as one."""
    parts = (attention.q_proj, attention.k_proj, attention.v_proj)
    joined = nn.Linear(attention.dim, 3 * attention.dim, device="meta")
    joined.weight = nn.Parameter(torch.cat([part.weight for part in parts]), requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([part.bias for part in parts]), requires_grad=False)
    return TowerAttention(joined, attention.proj, attention.num_heads)
