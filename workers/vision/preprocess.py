"""Pixels in, patches out: what the vision tower sees, in its order, bit for bit as trained.

From pixels to patches there are three steps, each exact on every device: `resized` makes RGB of
the planned size, `cut` orders its bytes, `normalised` looks each of them up. A pixel is one of 256
values in one of three channels, so normalising is a table of 768 floats that is made once with
the reference's own float operations.
"""

import numpy as np
import torch
from torch import Tensor

from workers.families.plan import ImagePlan
from workers.vision.background import lay_on
from workers.vision.resample import resize


class Preprocessor:
    """Normalises patches on one device; keeps the tables it has made."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._tables: dict[tuple[float, tuple[float, ...], tuple[float, ...]], Tensor] = {}

    def normalised(self, levels: Tensor, plan: ImagePlan) -> Tensor:
        """Normalise what `cut` gave on this device, and repeat it in every frame of a patch.

        Returns:
            float32 [plan.num_patches, 3 * temporal_patch_size * patch_size ** 2] on the device.
            Inside a patch: channel, frame, row, column.
        """
        channel_starts = torch.arange(0, 768, 256, dtype=torch.int32, device=self._device)
        places = levels.int().add_(channel_starts.view(1, 3, 1))
        values = self._table(plan).index_select(0, places.flatten())
        # A still image is the same in every frame; values are looked up once and copied.
        frames = values.view(-1, 3, 1, plan.patch_size**2)
        return frames.expand(-1, -1, plan.temporal_patch_size, -1).reshape(plan.num_patches, -1)

    def _table(self, plan: ImagePlan) -> Tensor:
        key = (plan.rescale, plan.mean, plan.std)
        if key not in self._tables:
            self._tables[key] = torch.from_numpy(_normalised(*key)).to(self._device)
        return self._tables[key]


def resized(pixels: Tensor, plan: ImagePlan) -> Tensor:
    """Source pixels to what the plan resizes them to.

    Args:
        pixels: uint8 [*plan.source_size, 3 or 4], RGB or RGBA, on any device.
        plan: the image's plan.

    Returns:
        uint8 RGB [*plan.resized_size, 3] on the same device.
    """
    ground = plan.background
    if ground is None or pixels.shape[2] == 3:
        return resize(pixels[..., :3], plan.resized_size, plan.first_pass)
    if ground.stage == "before_resize":
        return resize(lay_on(pixels, ground), plan.resized_size, plan.first_pass)
    return lay_on(resize(pixels, plan.resized_size, plan.first_pass), ground)


def cut(pixels: Tensor, plan: ImagePlan) -> Tensor:
    """Fill resized pixels up with raw 0 at the bottom and on the right, and cut them.

    Args:
        pixels: uint8 RGB [*plan.resized_size, 3], on any device.
        plan: the image's plan.

    Returns:
        uint8 [plan.num_patches, 3, patch_size ** 2] on the same device, patches in the plan's
        order: row by row, or tokens row by row and the patches of each together.
    """
    merge = plan.merge_size if plan.patch_order == "merged" else 1
    side = plan.patch_size
    _, rows, columns = plan.grid
    padded = _pad(pixels, plan)
    blocks = padded.view(rows // merge, merge, side, columns // merge, merge, side, 3)
    return blocks.permute(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, side * side)


def _normalised(
    rescale: float, mean: tuple[float, ...], std: tuple[float, ...]
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """Every raw value of every channel after normalising: float32 [768], channel by channel.

    The reference multiplies in float64, rounds, and goes on in float32. So must this.
    """
    rescaled = (np.arange(256, dtype=np.float64) * rescale).astype(np.float32)
    means, stds = np.array(mean, dtype=np.float32), np.array(std, dtype=np.float32)
    return ((rescaled - means[:, None]) / stds[:, None]).reshape(768)


def _pad(pixels: Tensor, plan: ImagePlan) -> Tensor:
    """Fill up to the padded size with raw 0 at the bottom and on the right."""
    height, width = (
        padded - resized
        for padded, resized in zip(plan.padded_size, plan.resized_size, strict=True)
    )
    if height == width == 0:
        return pixels
    return torch.nn.functional.pad(pixels, (0, 0, 0, width, 0, height))
