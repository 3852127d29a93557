"""Decode a file in a test as the gateway does, to an array."""

import numpy as np
import numpy.typing as npt

from config.settings import ImageSettings
from gateway.header import read_header
from gateway.payload import decode_pixels
from tests.gateway.files import source
from tests.plans import make_plan
from workers.families.plan import ImagePlan, plain

LIMITS = ImageSettings()
Pixels = npt.NDArray[np.uint8]


def plan_for(
    source_size: tuple[int, int], resized: tuple[int, int], background: tuple[int, int, int]
) -> ImagePlan:
    return make_plan(
        source_size, resized_size=resized, padded_size=resized, background=plain(background)
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
