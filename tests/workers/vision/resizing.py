"""Cases of resizing for the CPU and the GPU, and Pillow's own answer to each."""

import random
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from PIL import Image

from workers.families.plan import Pass, Size, first_pass

Pixels = npt.NDArray[np.uint8]

MODES = ("L", "LA", "RGB", "RGBA", "P", "1")
# (height, width) before and after: what has a rule or an edge of its own.
_SPECIAL: list[tuple[Size, Size]] = [
    ((31, 47), (31, 47)),  # nothing to do
    ((31, 47), (31, 20)), ((31, 47), (31, 90)), ((31, 47), (12, 47)), ((31, 47), (77, 47)),
    ((1, 1), (1, 1)), ((1, 1), (28, 56)), ((40, 30), (1, 1)),
    ((1, 90), (28, 28)), ((90, 1), (28, 28)), ((1, 90), (1, 28)), ((90, 1), (28, 1)),
    ((2, 3), (3, 2)), ((3, 300), (28, 112)), ((300, 3), (112, 28)), ((2, 400), (1, 9)),
    ((70, 45), (50, 35)),  # height loses twice what width loses: not vertical yet
    ((71, 45), (50, 35)), ((69, 45), (50, 35)), ((51, 45), (50, 35)), ((51, 34), (50, 35)),
    ((49, 34), (50, 35)), ((49, 30), (50, 35)),  # both grow
    ((49, 50), (50, 35)), ((400, 30), (60, 28)), ((30, 400), (28, 60)),
]  # fmt: skip
_NUM_DRAWN = 50


@dataclass(frozen=True, slots=True)
class Case:
    mode: str
    source: Size
    target: Size

    @property
    def first(self) -> Pass:
        return first_pass(self.source, self.target)

    def __str__(self) -> str:
        sizes = (f"{height}x{width}" for height, width in (self.source, self.target))
        return f"{self.mode}-{'-'.join(sizes)}"


def make_cases() -> list[Case]:
    draw = random.Random(11)
    drawn = [
        ((draw.randint(1, 90), draw.randint(1, 90)), (draw.randint(1, 70), draw.randint(1, 70)))
        for _ in range(_NUM_DRAWN)
    ]
    return [Case(mode, *sizes) for mode in MODES for sizes in _SPECIAL + drawn]


def draw_picture(case: Case, is_noise: bool) -> Image.Image:
    """Of the case's mode and size: noise, or stripes and slopes with sharp edges."""
    height, width = case.source
    random = np.random.default_rng([height, width, *case.target, MODES.index(case.mode)])
    if is_noise:
        values = random.integers(0, 256, (height, width, 4), dtype=np.int16)
    else:
        rows, columns = np.mgrid[0:height, 0:width]
        slopes = [rows * 255 // height, columns * 255 // width, (rows * columns) % 256]
        stripes = ((rows // 3 + columns // 5) % 3) * 127
        values = np.stack([*slopes, stripes], axis=-1)
        values[(rows // 8 + columns // 8) % 2 == 0] //= 3
    if is_noise:  # many pixels of no alpha and of full alpha: each of them is a rule of its own
        values[..., 3] = np.clip(values[..., 3] * 2 - 128, 0, 255)
    return _to_mode(Image.fromarray(values.astype(np.uint8)), case.mode)


def _to_mode(picture: Image.Image, mode: str) -> Image.Image:
    """In `mode`, or in what the gateway makes of it; a palette is resized in its colours."""
    if mode == "P":
        return picture.convert("RGB").quantize(16).convert("RGB")
    if mode == "1":
        return picture.convert("1").convert("RGB")
    return picture.convert(mode)


def to_array(picture: Image.Image) -> Pixels:
    """uint8 [height, width, channels]"""
    return np.array(picture).reshape(picture.height, picture.width, -1)


def by_pillow(picture: Image.Image, target: Size) -> Pixels:
    height, width = target
    return to_array(picture.resize((width, height), Image.Resampling.BICUBIC))
