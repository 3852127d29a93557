"""The vision towers of Qwen-VL: patches of several images in, embeddings per image out."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import vision_utils

from workers.families.norms import pack_norms
from workers.families.products import GatedMlp, pack_layers
from workers.families.tower import PatchEmbedding, Run, TowerAttention, runs_of
from workers.families.vision import Grid, PackedVision


class VisionModel(PackedVision):
    """A tower of transformers, fed with everything it would else ask the device for.

    It is the library's own but for its first layer and its attention. Images attend only to
    themselves, so a batch never changes an answer: on CPU in float32 an image's embeddings alone
    and in company differ by less than 1e-5 of their size (mostly not at all), which is what the
    order of sums in matrix products of another height may do.
    """

    def __init__(self, tower: Any) -> None:
        """Take over `tower`: the library's module, loaded, on its device."""
        super().__init__(tower)
        weight = next(tower.parameters())
        self.device: torch.device = weight.device
        self.dtype: torch.dtype = weight.dtype
        config = tower.config
        self.num_levels: int = 1 + len(getattr(config, "deepstack_visual_indexes", ()))
        self.hidden_size: int = getattr(config, "out_hidden_size", config.hidden_size)
        self.embedding_bytes_per_token: int = (
            self.num_levels * self.hidden_size * self.dtype.itemsize
        )
        tower.patch_embed = PatchEmbedding(tower.patch_embed.proj)
        for block in tower.blocks:
            attention = block.attn
            block.attn = TowerAttention(attention.qkv, attention.proj, attention.num_heads)
            if hasattr(block.mlp, "gate_proj") and config.hidden_act == "silu":
                block.mlp = GatedMlp(block.mlp)
        pack_norms(tower)
        pack_layers(tower)
        self._tower = tower
        self._merge_size: int = config.spatial_merge_size

    @torch.inference_mode()
    def _encode(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        grid = torch.tensor(grids)
        output = self._tower(
            patches.to(self.dtype), grid_thw=grid, return_dict=True, **self._tables(grid)
        )
        levels = torch.stack([output.pooler_output, *getattr(output, "deepstack_features", ())])
        return list(torch.split(levels, self._num_tokens(grids), dim=1))

    def _num_tokens(self, grids: Sequence[Grid]) -> list[int]:
        merged = self._merge_size**2
        return [frames * rows * columns // merged for frames, rows, columns in grids]

    def _tables(self, grid: Tensor) -> dict[str, Any]:
        """What the tower derives from the grids, computed on the CPU.

        Left to itself it would compute these on its device and wait for them in every layer.
        """
        config = self._tower.config
        tables = {"position_ids": vision_utils.get_vision_position_ids(grid, self._merge_size)}
        segments = {"cu_seqlens": runs_of(_lengths(vision_utils.get_vision_cu_seqlens(grid)))}
        if config.model_type.startswith("qwen2_5_vl"):
            tables["window_index"], segments["cu_window_seqlens"] = self._windows(grid)
        if config.model_type.startswith("qwen3_vl"):
            tables["interp_indices"], tables["interp_weights"] = (
                vision_utils.get_vision_interpolation_indices_and_weights(
                    grid,
                    self._tower.num_grid_per_side,
                    mode=self._tower.interpolation_mode,
                    align_corners=self._tower.interpolation_align_corners,
                    spatial_merge_size=self._merge_size,
                )
            )
        moved = {name: table.to(self.device, non_blocking=True) for name, table in tables.items()}
        return moved | segments

    def _windows(self, grid: Tensor) -> tuple[Tensor, tuple[Run, ...]]:
        """The order in which windows are neighbours, and where they lie in it.

        Within an image equal windows follow each other, so that those of a run can be computed
        together. Inside of a window and of an image order is free, as each patch knows its place.
        """
        config = self._tower.config
        orders: list[Tensor] = []
        lengths: list[int] = []
        for row in torch.split(grid, 1):
            order, ends = vision_utils.get_vision_window_index(
                row, self._merge_size, config.window_size, config.patch_size
            )
            sizes = [length // self._merge_size**2 for length in _lengths(ends)]
            windows = sorted(torch.split(order, sizes), key=len, reverse=True)
            offset = sum(map(len, orders))
            orders.append(torch.cat(windows) + offset)
            lengths.extend(len(window) * self._merge_size**2 for window in windows)
        return torch.cat(orders), runs_of(lengths)


def _lengths(ends: Tensor) -> list[int]:
    """[segments + 1], from 0 on: where each segment ends -> how long it is."""
    lengths: list[int] = ends.diff().tolist()
    return lengths
