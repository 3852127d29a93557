"""What the towers of all families share: images of a batch, spread over the threads of a CPU."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from workers.families.crew import Crew

Grid = tuple[int, int, int]  # frames, rows, columns of patches


class PackedVision:
    """The part of `workers.vision.encoder.Encoder` that is the same for every family."""

    def __init__(self, tower: nn.Module) -> None:
        """Look at the library's tower, loaded, on its device."""
        self._crew = Crew(tower)

    def encode(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """Encode still images that are given as patches, one after the other.

        Args:
            patches: float32 [sum of patches, values per patch], on the tower's device.
            grids: one per image.

        Returns:
            Per image, in order: [num_levels, tokens, hidden_size] in the tower's dtype. Level 0
            takes the place of the placeholder tokens, the others join early decoder layers.
        """
        lengths = [frames * rows * columns for frames, rows, columns in grids]
        images = torch.split(patches, lengths)

        def encode_some(places: list[int]) -> list[Tensor]:
            is_all = len(places) == len(images)
            rows = patches if is_all else torch.cat([images[place] for place in places])
            return self._encode(rows, [grids[place] for place in places])

        return self._crew.share_out(lengths, encode_some)

    def _encode(self, patches: Tensor, grids: Sequence[Grid]) -> list[Tensor]:
        """One pass of the tower, in any thread; like `encode`."""
        raise NotImplementedError
