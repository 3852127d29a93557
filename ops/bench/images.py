"""Synthetic photographs: a seed and sizes in, JPEG files out, no two of one run alike."""

import io
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

SCENES_PER_SIZE = 4
RECTANGLES = 12
GRAIN = 7.0  # standard deviation in grey levels; with quality 90 about 2.5 bits a pixel
STAMP_PIXELS = 16


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height in pixels."""

    width: int
    height: int


class Camera:
    """Takes pictures that all differ; owned by whoever prepares the requests of one run.

    Painting a scene is slow, so each size has a few, and every picture is one of them with a
    random stamp in a random place: other bytes, other pixels, about the same length.
    """

    def __init__(self, seed: int, quality: int = 90) -> None:
        self._seed = seed
        self._quality = quality
        self._random = np.random.default_rng(seed)
        self._scenes: dict[tuple[Size, int], Image.Image] = {}

    def take(self, size: Size) -> bytes:
        """A new JPEG file of this size, unlike any before it."""
        picture = self._scene(size, int(self._random.integers(SCENES_PER_SIZE))).copy()
        stamp = self._random.integers(0, 256, (STAMP_PIXELS, STAMP_PIXELS, 3), np.uint8)
        left = int(self._random.integers(max(1, size.width - STAMP_PIXELS)))
        top = int(self._random.integers(max(1, size.height - STAMP_PIXELS)))
        picture.paste(Image.fromarray(stamp), (left, top))
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=self._quality)
        return file.getvalue()

    def _scene(self, size: Size, number: int) -> Image.Image:
        key = (size, number)
        if key not in self._scenes:
            self._scenes[key] = paint_scene(size, (self._seed, size.width, size.height, number))
        return self._scenes[key]


def paint_scene(size: Size, seed: tuple[int, ...]) -> Image.Image:
    """Soft colours, hard edges and film grain: what makes a photograph's JPEG its size."""
    random = np.random.default_rng(seed)
    colours = random.integers(30, 226, (4, 5, 3), np.uint8)
    scene = Image.fromarray(colours).resize((size.width, size.height), Image.Resampling.BICUBIC)
    _draw_rectangles(scene, random)
    smooth = np.asarray(scene.filter(ImageFilter.GaussianBlur(1)), np.float32)
    grain = random.normal(0, GRAIN, (size.height, size.width, 1)).astype(np.float32)
    tint = random.normal(0, GRAIN / 3, smooth.shape).astype(np.float32)
    return Image.fromarray(np.clip(smooth + grain + tint, 0, 255).astype(np.uint8))


def _draw_rectangles(scene: Image.Image, random: np.random.Generator) -> None:
    draw = ImageDraw.Draw(scene)
    for _ in range(RECTANGLES):
        left, right = sorted(random.integers(0, scene.width, 2).tolist())
        top, bottom = sorted(random.integers(0, scene.height, 2).tolist())
        red, green, blue = random.integers(0, 256, 3).tolist()
        draw.rectangle((left, top, (left + right) // 2, (top + bottom) // 2), (red, green, blue))
