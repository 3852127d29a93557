"""Kimi's preprocessing as its public reference does it, on Pillow and numpy alone."""

from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from transformers.image_utils import make_flat_list_of_images

from workers.families.kimi_k25.layout import KimiLayout
from workers.families.plan import Background

Floats = np.ndarray[Any, np.dtype[np.float32]]


def reference_patches(image: Image.Image, layout: KimiLayout) -> Floats:
    """float32 [patches, 3, 14, 14] of an RGB or RGBA picture, row by row."""
    plan = layout.plan((image.height, image.width), "cpu")
    height, width = plan.resized_size
    ground = plan.background
    if ground is None:
        image = image.convert("RGB")
    elif ground.stage == "before_resize":
        image = reference_ground(image, ground)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    resized = np.asarray(reference_ground(image, ground) if ground else image)
    below, beside = plan.padded_size[0] - height, plan.padded_size[1] - width
    padded = np.pad(resized, ((0, below), (0, beside), (0, 0)))
    values = (padded / 255.0).astype(np.float32)
    values -= np.array(plan.mean, dtype=np.float32)
    values *= 1 / np.array(plan.std, dtype=np.float32)
    _, rows, columns = plan.grid
    side = plan.patch_size
    blocks = values.reshape(rows, side, columns, side, 3).transpose(0, 2, 4, 1, 3)
    return np.ascontiguousarray(blocks.reshape(rows * columns, 3, side, side))


def reference_ground(image: Image.Image, ground: Background) -> Image.Image:
    """Lay an RGBA picture on squares, the first colour in the top left corner."""
    if image.mode == "RGB":
        return image
    pixels = np.asarray(image)
    rows, columns = np.indices(pixels.shape[:2]) // ground.square
    is_second = ((rows + columns) % 2 == 1)[..., None]
    second, first = (np.array(each, np.uint8) for each in (ground.second, ground.first))
    board = np.where(is_second, second, first)
    alpha = (pixels[..., 3:].astype(np.float32) / 255.0).repeat(3, axis=-1)
    mixed = alpha * pixels[..., :3] + (1 - alpha) * board
    return Image.fromarray(np.clip(mixed, 0, 255).astype(np.uint8))


class PillowImageProcessor(transformers.Kimi_K25ImageProcessor):  # type: ignore[misc]
    """The library's, but that it resizes as Pillow does, which it would miss by up to 2 levels."""

    layout: KimiLayout

    def preprocess(self, images: Any, **_: Any) -> Any:
        """Make what the library's processor makes of pictures."""
        pictures = make_flat_list_of_images(images)
        patches = [reference_patches(picture, self.layout) for picture in pictures]
        plans = [self.layout.plan((each.height, each.width), "cpu") for each in pictures]
        return transformers.BatchFeature(
            {
                "pixel_values": torch.from_numpy(np.concatenate(patches)),
                "image_grid_thw": torch.tensor([plan.grid for plan in plans]),
            }
        )
