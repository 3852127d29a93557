"""Transparency on an owner's device: RGBA pixels in, RGB pixels on the plan's ground out."""

import torch
from torch import Tensor

from workers.families.ground import make_table
from workers.families.plan import Background

_CHUNK_VALUES = 1 << 25  # looked up at a time, each by a place of 4 bytes


def lay_on(pixels: Tensor, background: Background) -> Tensor:
    """Lay a picture on its ground, whose squares begin at the picture's top left corner.

    Args:
        pixels: uint8 RGBA [height, width, 4] on any device.
        background: the ground.

    Returns:
        uint8 RGB [height, width, 3] on the same device, bit-equal to
        `workers.families.ground.lay_on`.
    """
    height, width, _ = pixels.shape
    table = torch.from_numpy(make_table(background)).to(pixels.device).flatten()
    rows, columns = (
        torch.arange(side, dtype=torch.int32, device=pixels.device) // background.square
        for side in (height, width)
    )
    step = max(1, _CHUNK_VALUES // (3 * width))
    parts = zip(torch.split(rows, step), torch.split(pixels, step), strict=True)
    return torch.cat([_look_up(table, (some[:, None] + columns) % 2, part) for some, part in parts])


def _look_up(table: Tensor, squares: Tensor, pixels: Tensor) -> Tensor:
    """The table's entries for uint8 [height, width, 4] over int32 [height, width] squares."""
    channels = torch.arange(3, dtype=torch.int32, device=table.device) << 17
    starts = (squares << 16) + (pixels[..., 3].int() << 8)
    places = starts[..., None] + channels + pixels[..., :3]
    return table.index_select(0, places.flatten()).view(places.shape)
