"""The plan of one image: what later stages need to know about its geometry and pixels."""

from typing import Literal

import msgspec

Backend = Literal["cpu", "cuda"]


class ImagePlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Decided once from an image's header by the family's layout; travels with the image.

    No field has a default: a plan that misses one, or carries one too many, fails when it is
    made or read from the wire. All sizes are in pixels, heights before widths.
    """

    family: str
    backend: Backend  # where the image is resized
    source_size: tuple[int, int]  # as displayed: after the EXIF orientation
    resized_size: tuple[int, int]
    padded_size: tuple[int, int]  # right and bottom are filled with raw 0 before normalising
    grid: tuple[int, int, int]  # frames, rows, columns of patches, before merging
    patch_size: int  # side of a square patch
    temporal_patch_size: int  # frames in a patch; a still image is repeated
    merge_size: int  # merge_size x merge_size patches become one token
    num_tokens: int
    resample: Literal["bicubic"]
    rescale: float  # factor applied to raw values before mean and std
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    background: tuple[int, int, int]  # RGB under transparent pixels

    @property
    def num_patches(self) -> int:
        """Rows that the vision tower sees for this image."""
        frames, rows, columns = self.grid
        return frames * rows * columns
