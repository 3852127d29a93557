"""The decoder of Qwen-VL: the library's own modules, run over packed sequences."""

from typing import Any

import torch
from torch import Tensor

from workers.families import UnsupportedCheckpoint
from workers.families.decoder import Attention, LayerKv, VisualRows, check_rope
from workers.families.text import PackedText

ATTENTION_NAME = "fovea_packed"
NUM_AXES = 3  # frame, row and column


class TextModel(PackedText):
    """See `workers.families.decoder.Decoder`; serves qwen2_vl, qwen2_5_vl and qwen3_vl."""

    def __init__(
        self, language_model: Any, lm_head: torch.nn.Module, num_deepstack_levels: int
    ) -> None:
        """Take over a loaded text model and its output projection.

        Raises:
            UnsupportedCheckpoint: a layer does something that packed attention does not.
        """
        config = language_model.config
        _check_layers(config)
        super().__init__(language_model, lm_head, (ATTENTION_NAME, _attend))
        heads = config.num_key_value_heads
        self.kv_spec = tuple(
            LayerKv(heads, layer.self_attn.head_dim, layer.self_attn.head_dim)
            for layer in language_model.layers
        )
        self.num_deepstack_levels = num_deepstack_levels
        self.num_axes = NUM_AXES

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        attention: Attention,
        visual: VisualRows | None,
    ) -> Tensor:
        """Run the layers; see `Decoder.forward`."""
        deepstack: dict[str, Any] = {}
        if visual is not None:
            deepstack["visual_pos_masks"] = visual.mask[None]
            deepstack["deepstack_visual_embeds"] = list(visual.levels)
        output = self._language_model(
            inputs_embeds=embeddings[None],
            position_ids=positions[:, None],  # three axes: two would be taken for a batch
            use_cache=False,
            packed=attention,
            **deepstack,
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden


def _attend(  # noqa: PLR0913 - the library's signature
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    packed: Attention,
    **_: Any,
) -> tuple[Tensor, None]:
    """The library's attention hook: one batch entry [1, heads, tokens, dim] of packed rows."""
    output = packed.attend(module.layer_idx, query[0], key[0], value[0], scaling)
    return output[None], None


def _check_layers(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UnsupportedCheckpoint(
            f"layers of kind {sorted(kinds)} are not supported; supported is full_attention"
        )
    check_rope(config)
