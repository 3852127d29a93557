"""Decode a file in a test as the gateway does, to an array."""

import numpy as np
import numpy.typing as npt

from config.settings import ImageSettings
from gateway.header import read_header
from gateway.payload import decode_pixels
from tests.gateway.files import source
from workers.families.plan import ImagePlan

LIMITS = ImageSettings()
Pixels = npt.NDArray[np.uint8]


def plan_for(
    source_size: tuple[int, int], resized: tuple[int, int], background: tuple[int, int, int]
) -> ImagePlan:
    return ImagePlan(
        family="qwen_vl",
        backend="cpu",
        source_size=source_size,
        resized_size=resized,
        padded_size=resized,
        grid=(1, 2, 2),
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        num_tokens=1,
        resample="bicubic",
        rescale=1 / 255,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        background=background,
    )


def decode(
    data: bytes,
    resized: tuple[int, int] | None = None,
    background: tuple[int, int, int] = (255, 255, 255),
) -> Pixels:
    """Decode to [height, width, 3]; without `resized`, at the size the picture is displayed in."""
    header = read_header(source(data), LIMITS)
    height, width = resized or header.displayed_size
    plan = plan_for(header.displayed_size, (height, width), background)
    pixels = decode_pixels(source(data), header, plan)
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
