"""What the engine asks of a family's decoder, and what it lends it in a forward pass."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from workers.families import UnsupportedCheckpoint
from workers.families.config_files import ROPE_TYPES

# The library reads mrope as default. All others change with the batch.
FIXED_ROPE_TYPES = tuple(kind for kind in ROPE_TYPES if kind != "mrope")


class LayerKv(NamedTuple):
    """What one layer keeps of a token.

    A latent layer keeps one vector for both: its values are the first `value_dim` numbers of its
    keys, and nothing is stored twice.
    """

    num_heads: int  # of keys, and of values
    key_dim: int
    value_dim: int
    is_latent: bool = False

    @property
    def num_stored(self) -> int:
        """Numbers that are kept of each token."""
        return self.num_heads * (self.key_dim + (0 if self.is_latent else self.value_dim))


@dataclass(frozen=True, slots=True)
class VisualRows:
    """Deepstack: what the first layers add to the rows of image tokens."""

    rows: Tensor  # [image tokens], int64; those of the step's rows
    levels: Tensor  # [levels, image tokens, hidden]


class Attention(Protocol):
    """Attention of one step over every sequence in it; made anew for each step."""

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None, scale: float
    ) -> Tensor:
        """Keep the new keys and values of `layer`, then attend, causally per sequence.

        Args:
            layer: index of the decoder layer.
            query: [query heads, tokens, key dim], rotated.
            key: [heads, tokens, key dim], rotated.
            value: [heads, tokens, value dim]; None for a latent layer, which has it in its key.
            scale: factor applied to the scores.

        Returns:
            [tokens, query heads, value dim]
        """
        ...


class Decoder(Protocol):
    """The language part of a checkpoint, ready to run."""

    kv_spec: tuple[LayerKv, ...]  # one per layer
    hidden_size: int
    vocab_size: int
    num_deepstack_levels: int
    num_axes: int  # of its rotary positions
    device: torch.device
    dtype: torch.dtype
    is_recordable: bool  # whether a pass asks its device nothing, so that it can be replayed

    def embed(self, ids: Tensor) -> Tensor:
        """Embed token ids, int64 [tokens] -> [tokens, hidden]."""
        ...

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        attention: Attention,
        visual: VisualRows | None,
    ) -> Tensor:
        """Run the layers over the packed tokens of a step.

        Args:
            embeddings: [tokens, hidden].
            positions: int64 [axes, tokens].
            attention: what the step's sequences may see.
            visual: None when no row is an image token or the checkpoint has no deepstack.

        Returns:
            [tokens, hidden], normalised for `logits`.
        """
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every token after each row, [rows, hidden] -> float32 [rows, vocab]."""
        ...


def check_rope(config: Any) -> None:
    """Refuse rotations that depend on what else is in the batch.

    Args:
        config: the library's configuration of a text model.

    Raises:
        UnsupportedCheckpoint: the rope type is not known to be fixed.
    """
    rope_type = (config.rope_parameters or {}).get("rope_type", "default")
    if rope_type not in FIXED_ROPE_TYPES:
        raise UnsupportedCheckpoint(
            f"rope type {rope_type!r} is not supported; supported are {', '.join(FIXED_ROPE_TYPES)}"
        )
