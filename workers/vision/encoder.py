"""What the owner needs of a vision tower."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor


class Encoder(Protocol):
    """A vision tower."""

    device: torch.device
    dtype: torch.dtype
    num_levels: int
    hidden_size: int

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """Embeddings [num_levels, tokens, hidden_size] per image, in order.

        Args:
            patches: float32 [sum of patches, values per patch], on `device`.
            grids: frames, rows and columns of patches, one per image.
        """
        ...
