"""Payload rules to compare: patches made in the gateway, and one form for every image.

The patches are the baseline. They are made in numpy alone, with the bits that an owner makes.
"""

from functools import lru_cache, partial
from typing import Any, cast

import numpy as np

from gateway.encoding.flight import Made, Picture
from gateway.encoding.payload import Form, as_payload, make_bytes, payload_bytes
from gateway.images.header import ImageHeader
from workers.families.plan import ImagePlan
from workers.messages import Patches

VALUE_BYTES = 4  # of a float32

Floats = np.ndarray[Any, np.dtype[np.float32]]
Levels = np.ndarray[Any, np.dtype[np.uint8]]


class OneForm:
    """The same form for every image; see `gateway.encoding.flight.Payloads`."""

    def __init__(self, form: Form) -> None:
        """`jpeg` asks for an owner that decodes such files."""
        self._form = form

    def num_bytes(self, picture: Picture) -> int:
        """See `gateway.encoding.flight.Payloads`."""
        return payload_bytes(self._form, picture.source, _header(picture), picture.task.plan)

    def make(self, picture: Picture, *, decoded: bool) -> Made:
        """See `gateway.encoding.flight.Payloads`."""
        del decoded
        header, plan = _header(picture), picture.task.plan
        data = make_bytes(picture.source, header, plan, self._form)
        return data, partial(as_payload, self._form, header=header, plan=plan)


class EagerPatches:
    """Every image is made patches here; see `gateway.encoding.flight.Payloads`."""

    def num_bytes(self, picture: Picture) -> int:
        """See `gateway.encoding.flight.Payloads`."""
        return patches_bytes(picture.task.plan)

    def make(self, picture: Picture, *, decoded: bool) -> Made:
        """See `gateway.encoding.flight.Payloads`."""
        del decoded
        plan = picture.task.plan
        data = make_bytes(picture.source, _header(picture), plan, "resized")
        patches = make_patches(np.frombuffer(data, np.uint8).reshape(*plan.resized_size, 3), plan)
        # A view of them, because bytes would be one more copy.
        return cast("bytes", patches.view(np.uint8).reshape(-1).data), Patches


def _header(picture: Picture) -> ImageHeader:
    assert isinstance(picture.header, ImageHeader), "the bench shows pictures"
    return picture.header


def patches_bytes(plan: ImagePlan) -> int:
    """Size of one image's patches."""
    return plan.num_patches * 3 * plan.temporal_patch_size * plan.patch_size**2 * VALUE_BYTES


def make_patches(pixels: Levels, plan: ImagePlan) -> Floats:
    """Cut and normalise one image.

    Args:
        pixels: uint8 RGB [height, width, 3] of the plan's resized size.
        plan: the image's plan.

    Returns:
        float32 [plan.num_patches, 3 * temporal_patch_size * patch_size ** 2], contiguous; inside a
        patch: channel, frame, row, column.
    """
    places = _cut(_padded(pixels, plan), plan).astype(np.int16)
    places += np.array([[0], [256], [512]], np.int16)  # where a channel's values start
    values = np.take(_table(plan.rescale, plan.mean, plan.std), places)
    # A still image is the same in every frame.
    frames = np.repeat(values[:, :, None], plan.temporal_patch_size, axis=2)
    return frames.reshape(plan.num_patches, -1)


@lru_cache(maxsize=16)
def _table(rescale: float, mean: tuple[float, ...], std: tuple[float, ...]) -> Floats:
    """float32 [768]: multiplied in float64, rounded, then on in float32, as the reference."""
    rescaled = (np.arange(256, dtype=np.float64) * rescale).astype(np.float32)
    means, stds = np.array(mean, np.float32)[:, None], np.array(std, np.float32)[:, None]
    return ((rescaled - means) / stds).reshape(-1)


def _padded(pixels: Levels, plan: ImagePlan) -> Levels:
    height, width = plan.padded_size
    if (height, width) == pixels.shape[:2]:
        return pixels
    padded = np.zeros((height, width, 3), np.uint8)
    padded[: pixels.shape[0], : pixels.shape[1]] = pixels
    return padded


def _cut(pixels: Levels, plan: ImagePlan) -> Levels:
    """uint8 [patches, 3, patch_size ** 2], in the plan's order."""
    side = plan.patch_size
    merge = plan.merge_size if plan.patch_order == "merged" else 1
    _, rows, columns = plan.grid
    blocks = pixels.reshape(rows // merge, merge, side, columns // merge, merge, side, 3)
    return blocks.transpose(0, 3, 1, 4, 6, 2, 5).reshape(rows * columns, 3, side * side)
