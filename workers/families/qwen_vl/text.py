"""The decoder of Qwen-VL: the library's weights, run over packed sequences."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from workers.families import UnsupportedCheckpoint
from workers.families.decoder import Attention, LayerKv, VisualRows, check_rope
from workers.families.norms import norm_of
from workers.families.qwen_vl.layers import DecoderLayer
from workers.families.rotation import Rotations
from workers.families.text import PackedText

NUM_AXES = 3  # frame, row and column


class TextModel(PackedText):
    """See `workers.families.decoder.Decoder`; serves qwen2_vl, qwen2_5_vl and qwen3_vl."""

    def __init__(
        self, language_model: Any, lm_head: torch.nn.Linear, num_deepstack_levels: int
    ) -> None:
        """Take over a loaded text model and its output projection.

        Raises:
            UnsupportedCheckpoint: a layer does something that packed attention does not.
        """
        config = language_model.config
        _check_layers(config)
        super().__init__(language_model, lm_head)
        heads = config.num_key_value_heads
        self.kv_spec = tuple(
            LayerKv(heads, layer.self_attn.head_dim, layer.self_attn.head_dim)
            for layer in language_model.layers
        )
        self._layers = tuple(_take_layers(language_model))
        self._norm = norm_of(language_model.norm)
        self._rotations = Rotations(language_model.embed_tokens.weight)
        self.num_deepstack_levels = num_deepstack_levels
        self.num_axes = NUM_AXES
        self.is_recordable = True

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        attention: Attention,
        visual: VisualRows | None,
    ) -> Tensor:
        """Run the layers; see `Decoder.forward`."""
        self._crew.call(len(embeddings))
        hidden = embeddings
        tables = self._language_model.rotary_emb(self._rotations.like, positions[:, None])
        rotation = self._rotations.of(*(table[0] for table in tables))
        for index, layer in enumerate(self._layers):
            hidden = layer(hidden, rotation, attention)
            if visual is not None and index < len(visual.levels):
                hidden.index_add_(0, visual.rows, visual.levels[index])
        return self._norm(hidden)


def _take_layers(language_model: Any) -> Iterator[DecoderLayer]:
    """Our layers; each of the library's is let go of as soon as its weights are taken over."""
    for index, layer in enumerate(language_model.layers):
        yield DecoderLayer(layer, index)
        language_model.layers[index] = torch.nn.Identity()


def _check_layers(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedCheckpoint(
            f"layers of kind {sorted(kinds)} are not supported; supported is full_attention"
        )
    check_rope(config)
