"""The plan of one image: what later stages need to know about its geometry and pixels."""

from typing import Literal

import msgspec

Backend = Literal["cpu", "cuda"]
Colour = tuple[int, int, int]  # red, green, blue; 0 to 255
Size = tuple[int, int]  # height, width, in pixels
Pass = Literal["horizontal", "vertical"]


class Background(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What shows through transparent pixels: squares of two colours, or a plain ground of one."""

    stage: Literal["before_resize", "after_resize"]  # when pixels are laid on it
    square: int  # side in pixels, counted from the top left corner of the picture at that stage
    first: Colour  # of the square in the corner
    second: Colour  # of its neighbours; a plain ground has the same


class ImagePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decided once from an image's header by the family's layout; travels with the image.

    No field has a default: a plan that misses one, or carries one too many, fails when it is
    made or read from the wire. All sizes are in pixels, heights before widths.
    """

    family: str
    backend: Backend  # where the image is decoded and preprocessed
    source_size: Size  # as displayed: after the EXIF orientation
    resized_size: Size
    padded_size: Size  # right and bottom are filled with raw 0 before normalising
    grid: tuple[int, int, int]  # frames, rows, columns of patches, before merging
    patch_size: int  # side of a square patch
    temporal_patch_size: int  # frames in a patch; a still image is repeated
    merge_size: int  # merge_size x merge_size patches become one token
    patch_order: Literal["raster", "merged"]  # row by row, or the patches of a token together
    num_tokens: int
    attention_patches: int  # of an image that takes the tower as long to attend as all else
    resample: Literal["bicubic"]
    first_pass: Pass  # of the two passes of resizing, each of which rounds to whole levels
    rescale: float  # factor applied to raw values before mean and std
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    background: Background | None  # None: transparency is dropped and the hidden colours show

    @property
    def num_patches(self) -> int:
        """Rows that the vision tower sees for this image."""
        frames, rows, columns = self.grid
        return frames * rows * columns


def plain(colour: Colour) -> Background:
    """A ground of one colour, laid under the resized picture."""
    return Background(stage="after_resize", square=1, first=colour, second=colour)


def first_pass(source: Size, resized: Size) -> Pass:
    """Which way Pillow 13 resizes first; it decides bits, because every pass rounds.

    It begins with the height where that loses more than twice what the width loses. Before
    version 13 it always began horizontally.
    """
    height, width = (old - new for old, new in zip(source, resized, strict=True))
    return "vertical" if height > 2 * max(width, 0) else "horizontal"
