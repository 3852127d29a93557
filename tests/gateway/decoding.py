"""Decode a file in a test as the gateway does, to an array."""

import numpy as np
import numpy.typing as npt

from config.settings import ImageSettings
from gateway.encoding.payload import make_bytes
from gateway.images.header import read_header
from tests.gateway.files import source
from tests.plans import make_plan
from workers.families.plan import Background, ImagePlan, plain

LIMITS = ImageSettings()
WHITE = plain((255, 255, 255))
Pixels = npt.NDArray[np.uint8]


def plan_for(
    source_size: tuple[int, int], resized: tuple[int, int], background: Background | None
) -> ImagePlan:
    return make_plan(source_size, resized_size=resized, padded_size=resized, background=background)


def decode(
    data: bytes,
    resized: tuple[int, int] | None = None,
    background: Background | None = WHITE,
) -> Pixels:
    """Decode to [height, width, 3]; without `resized`, at the size the picture is displayed in."""
    header = read_header(source(data), LIMITS)
    height, width = resized or header.displayed_size
    plan = plan_for(header.displayed_size, (height, width), background)
    pixels = make_bytes(source(data), header, plan, "resized")
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)
