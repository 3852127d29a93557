"""Geometry of Qwen-VL images: checkpoint folder in, plans and rotary positions out; no torch.

One layout serves qwen2_vl, qwen2_5_vl and qwen3_vl: an image is resized so that both sides are
multiples of a token's side and the area lies between two limits, then cut into patches.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workers.families import ImageShapeError
from workers.families.plan import Backend, ImagePlan, Size, first_pass, plain
from workers.families.qwen_vl.checkpoint import Checkpoint, read_checkpoint

MAX_ASPECT_RATIO = 200
WHITE = (255, 255, 255)


@dataclass(frozen=True, slots=True)
class QwenLayout:
    """Geometry and prompt form of one checkpoint; see `workers.families.Layout`."""

    family: str
    image_token: str
    image_token_id: int
    max_context_tokens: int
    checkpoint: Checkpoint

    @property
    def max_resized_pixels(self) -> int:
        """Upper bound of height times width after resizing, whatever the image."""
        facts = self.checkpoint
        side = facts.patch_size * facts.merge_size
        # Where a limit on the area leaves no room for one token across, or a picture grows up to
        # whole tokens, the area goes over the limit; most so for the longest shape.
        long_shrunk = math.sqrt(facts.max_pixels * MAX_ASPECT_RATIO)
        long_grown = math.sqrt(facts.min_pixels * MAX_ASPECT_RATIO)
        grown = (long_grown + side) * (long_grown / MAX_ASPECT_RATIO + side)
        return math.ceil(max(facts.max_pixels, side * long_shrunk, side**2, grown))

    def plan(
        self, source_size: tuple[int, int], backend: Backend, max_pixels: int | None = None
    ) -> ImagePlan:
        """Plan an image from its displayed (height, width); see `workers.families.Layout`.

        Raises:
            ImageShapeError: a side is zero, or one side is over 200 times the other.
        """
        return self._planned(source_size, self._resized(source_size, max_pixels), backend)

    def plan_grid(self, grid: tuple[int, int, int], backend: Backend) -> ImagePlan:
        """Plan an image from its grid of patches; see `workers.families.Layout`."""
        facts = self.checkpoint
        frames, rows, columns = grid
        most = self.max_resized_pixels // facts.patch_size**2
        sides = range(facts.merge_size, most + 1, facts.merge_size)
        if frames != 1 or rows not in sides or columns not in sides or rows * columns > most:
            raise ImageShapeError(
                f"its grid is {list(grid)}; it should be 1 frame with rows and columns in "
                f"multiples of {facts.merge_size}, and at most {most} patches in all"
            )
        size = (rows * facts.patch_size, columns * facts.patch_size)
        return self._planned(size, size, backend)

    def _planned(self, source_size: Size, resized: Size, backend: Backend) -> ImagePlan:
        facts = self.checkpoint
        height, width = resized
        rows, columns = height // facts.patch_size, width // facts.patch_size
        return ImagePlan(
            family=self.family,
            backend=backend,
            source_size=source_size,
            resized_size=(height, width),
            padded_size=(height, width),  # the sides are multiples already
            grid=(1, rows, columns),
            patch_size=facts.patch_size,
            temporal_patch_size=facts.temporal_patch_size,
            merge_size=facts.merge_size,
            attention_patches=facts.attention_patches,
            num_tokens=rows * columns // facts.merge_size**2,
            patch_order="merged",
            resample="bicubic",
            first_pass=first_pass(source_size, (height, width)),
            rescale=facts.rescale,
            mean=facts.mean,
            std=facts.std,
            background=plain(WHITE),
        )

    def positions(
        self, num_tokens: int, spans: list[tuple[int, tuple[int, int, int]]]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
        """Rotary positions of a prompt whose images start at `spans` (first token, grid).

        Text moves on all axes together. Inside an image the first axis stands still, the others
        count rows and columns of tokens; text goes on after the larger of the two.

        Args:
            num_tokens: length of the prompt, images included.
            spans: in prompt order, not overlapping, inside the prompt.

        Returns:
            int64 [3, num_tokens] (frame, row, column), and the offset that turns the index of a
            later token into its position on every axis.
        """
        positions = np.empty((3, num_tokens), dtype=np.int64)
        index = position = 0
        for start, grid in spans:
            positions[:, index:start] = np.arange(position, position + start - index)
            position += start - index
            rows, columns = (side // self.checkpoint.merge_size for side in grid[1:])
            index = start + rows * columns
            inside = positions[:, start:index]
            inside[0] = position
            inside[1] = position + np.repeat(np.arange(rows), columns)
            inside[2] = position + np.tile(np.arange(columns), rows)
            position += max(rows, columns)
        positions[:, index:] = np.arange(position, position + num_tokens - index)
        return positions, position - index

    def _resized(self, source_size: tuple[int, int], max_pixels: int | None) -> tuple[int, int]:
        """Sides as the checkpoint's processor chooses them, to the last rounding."""
        facts = self.checkpoint
        height, width = source_size
        _check_shape(height, width)
        side = facts.patch_size * facts.merge_size
        most = min(facts.max_pixels, max_pixels or facts.max_pixels)
        least = min(facts.min_pixels, most)
        # Python rounds halves to even, and so does the reference.
        new_height, new_width = round(height / side) * side, round(width / side) * side
        if new_height * new_width > most:
            shrink = math.sqrt((height * width) / most)
            new_height = max(side, math.floor(height / shrink / side) * side)
            new_width = max(side, math.floor(width / shrink / side) * side)
        elif new_height * new_width < least:
            grow = math.sqrt(least / (height * width))
            new_height = math.ceil(height * grow / side) * side
            new_width = math.ceil(width * grow / side) * side
        return new_height, new_width


def read_layout(model: Path) -> QwenLayout:
    """The layout of the checkpoint at `model`, read from its configuration files alone.

    Raises:
        UnsupportedCheckpoint: a file is missing, or asks for something that is not served.
    """
    checkpoint = read_checkpoint(model)
    return QwenLayout(
        family="qwen_vl",
        image_token="<|image_pad|>",
        image_token_id=checkpoint.image_token_id,
        max_context_tokens=checkpoint.max_context_tokens,
        checkpoint=checkpoint,
    )


def _check_shape(height: int, width: int) -> None:
    short, long = sorted((height, width))
    if short < 1:
        raise ImageShapeError(f"image is {width} x {height} pixels; each side needs at least 1")
    if long / short > MAX_ASPECT_RATIO:
        raise ImageShapeError(
            f"image is {width} x {height} pixels; the longer side may be at most "
            f"{MAX_ASPECT_RATIO} times the shorter, here it is {long / short:.1f} times"
        )
