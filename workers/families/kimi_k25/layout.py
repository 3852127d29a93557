"""Geometry of Kimi images: checkpoint folder in, plans and positions out; no torch.

An image keeps its size unless it has too many patches, in all or on one side; then it shrinks.
The right and the bottom are filled up to whole tokens.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from workers.families import ImageShapeError
from workers.families.kimi_k25.checkpoint import Checkpoint, read_checkpoint
from workers.families.plan import Backend, ImagePlan, Size, first_pass


@dataclass(frozen=True, slots=True)
class KimiLayout:
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
        side = facts.max_side_patches
        # Limits count whole patches. A side is below (whole patches of the source + 1) * scale,
        # the area below whole * scale^2 + (rows + columns) * scale^2 + 1; all in patches.
        patches = min(side**2, facts.max_patches + 2 * side + 1)
        return patches * facts.patch_size**2

    def plan(self, source_size: Size, backend: Backend, max_pixels: int | None = None) -> ImagePlan:
        """Plan an image from its displayed (height, width); see `workers.families.Layout`.

        Raises:
            ImageShapeError: a side is zero.
        """
        return self._planned(source_size, self._resized(source_size, max_pixels), backend)

    def plan_grid(self, grid: tuple[int, int, int], backend: Backend) -> ImagePlan:
        """Plan an image from its grid of patches; see `workers.families.Layout`."""
        facts = self.checkpoint
        frames, rows, columns = grid
        merge, side = facts.merge_size, facts.max_side_patches
        most = self.max_resized_pixels // facts.patch_size**2
        sides = range(merge, side + 1, merge)
        # The picture ends in the last row and column of tokens; what it fills for sure counts.
        filled = (rows - merge) * (columns - merge)
        if frames != 1 or rows not in sides or columns not in sides or filled >= most:
            raise ImageShapeError(
                f"its grid is {list(grid)}; it should be 1 frame with rows and columns in "
                f"multiples of {merge}, each at most {side}, and less than {most} patches "
                f"without the last {merge} rows and columns"
            )
        size = (rows * facts.patch_size, columns * facts.patch_size)
        return self._planned(size, size, backend)

    def _planned(self, source_size: Size, resized: Size, backend: Backend) -> ImagePlan:
        facts = self.checkpoint
        padded = self._padded(resized)
        rows, columns = (side // facts.patch_size for side in padded)
        num_tokens = rows * columns // facts.merge_size**2
        return ImagePlan(
            family=self.family,
            backend=backend,
            source_size=source_size,
            resized_size=resized,
            padded_size=padded,
            grid=(1, rows, columns),
            patch_size=facts.patch_size,
            temporal_patch_size=1,
            merge_size=facts.merge_size,
            attention_patches=facts.attention_patches,
            num_tokens=facts.fixed_output_tokens or num_tokens,
            patch_order="raster",
            resample="bicubic",
            first_pass=first_pass(source_size, resized),
            rescale=facts.rescale,
            mean=facts.mean,
            std=facts.std,
            background=facts.background,
        )

    def positions(
        self, num_tokens: int, spans: list[tuple[int, tuple[int, int, int]]]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
        """Rotary positions of a prompt: every token, of text or image, is one further.

        Returns:
            int64 [1, num_tokens], and the offset of later tokens, which is 0.
        """
        return np.arange(num_tokens, dtype=np.int64)[None], 0

    def _resized(self, source_size: Size, max_pixels: int | None) -> Size:
        """Sides as the checkpoint's processor chooses them, to the last rounding."""
        facts = self.checkpoint
        height, width = source_size
        if min(height, width) < 1:
            raise ImageShapeError(f"image is {width} x {height} pixels; each side needs at least 1")
        # Whole patches only, so an image may end up with a few more than it should.
        rows, columns = (max(1, side // facts.patch_size) for side in source_size)
        max_patches = facts.max_patches
        if max_pixels is not None:
            max_patches = min(max_patches, max(1, max_pixels // facts.patch_size**2))
        most = facts.max_side_patches * facts.patch_size
        scale = min(1.0, math.sqrt(max_patches / (rows * columns)), most / width, most / height)
        new_height, new_width = (min(max(1, int(side * scale)), most) for side in source_size)
        return new_height, new_width

    def _padded(self, resized: Size) -> Size:
        token = self.checkpoint.patch_size * self.checkpoint.merge_size
        height, width = (math.ceil(side / token) * token for side in resized)
        return height, width


def read_layout(model: Path) -> KimiLayout:
    """The layout of the checkpoint at `model`, read from its configuration files alone.

    Raises:
        UnsupportedCheckpoint: a file is missing, or asks for something that is not served.
    """
    checkpoint = read_checkpoint(model)
    return KimiLayout(
        family="kimi_k25",
        image_token="<|media_pad|>",
        image_token_id=checkpoint.image_token_id,
        max_context_tokens=checkpoint.max_context_tokens,
        checkpoint=checkpoint,
    )
