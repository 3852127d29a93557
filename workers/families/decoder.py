"""What the engine asks of a family's decoder, and what it lends it in a forward pass."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class LayerKv(NamedTuple):
    """What one layer keeps of a token."""

    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int


@dataclass(frozen=True, slots=True)
class VisualRows:
    """Deepstack: what the first layers add to the rows of image tokens."""

    mask: Tensor  # [tokens], bool; which rows are image tokens
    levels: Tensor  # [levels, image tokens, hidden]


class Attention(Protocol):
    """Attention of one step over every sequence in it; made anew for each step."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """Keep the new keys and values of `layer`, then attend, causally per sequence.

        Args:
            layer: index of the decoder layer.
            query: [query heads, tokens, key dim], rotated.
            key: [key heads, tokens, key dim], rotated.
            value: [value heads, tokens, value dim].
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
    device: torch.device
    dtype: torch.dtype

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
