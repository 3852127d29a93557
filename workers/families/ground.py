"""How transparent pixels lie on a ground: one table, so that every device gives the same bits.

A channel of a pixel is a level, an alpha and the ground's level under it. What comes of 256 levels
and 256 alphas is written down once per level of the ground, with the reference's own float steps;
whoever composes looks it up: the gateway here with numpy, an owner in `workers.vision.background`.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from workers.families.plan import Background

Bytes = npt.NDArray[np.uint8]


@lru_cache(maxsize=8)  # a checkpoint has one ground, and a table takes 2 ms
def make_table(background: Background) -> Bytes:
    """Every result: uint8 [3 channels, 2 colours of the ground, 256 alphas, 256 levels].

    All callers get the same array, to read from.

    The reference goes in float32 and drops what is behind the point, so that white on white may
    come out as 254. So must this.
    """
    alphas = (np.arange(256, dtype=np.float32) / np.float32(255))[:, None]
    levels = np.arange(256, dtype=np.uint8)
    colours = np.array([background.first, background.second], dtype=np.uint8)
    mixed = alphas * levels + (np.float32(1) - alphas) * colours.T[:, :, None, None]
    return np.clip(mixed, 0, 255).astype(np.uint8)


def lay_on(pixels: Bytes, background: Background) -> Bytes:
    """Lay uint8 RGBA [height, width, 4] on its ground: uint8 RGB [height, width, 3].

    The ground's squares begin at the top left corner of these pixels.
    """
    height, width, _ = pixels.shape
    rows, columns = (np.arange(side) // background.square for side in (height, width))
    squares = ((rows[:, None] + columns) % 2).astype(np.int32)
    starts = (squares << 16) + (pixels[..., 3].astype(np.int32) << 8)
    result = np.empty((height, width, 3), dtype=np.uint8)
    for channel, table in enumerate(make_table(background).reshape(3, -1)):
        result[..., channel] = table[starts + pixels[..., channel]]
    return result
