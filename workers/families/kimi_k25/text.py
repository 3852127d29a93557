"""The decoder of Kimi-K2.5: the library's own modules, run over packed sequences.

Attention is latent: of each token a layer keeps one compressed vector and one rotated key, and
never expands them to heads. Instead each query is taken into the latent space, and each result
out of it, which costs the same however long the context is.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface

from workers.families import UnsupportedCheckpoint
from workers.families.decoder import Attention, LayerKv, VisualRows, check_rope
from workers.families.products import pack_layers
from workers.families.text import PackedText

ATTENTION_NAME = "fovea_latent"
TEXT_MODEL_TYPE = "deepseek_v3"  # the library reads kimi_k2 as this


class TextModel(PackedText):
    """See `workers.families.decoder.Decoder`."""

    def __init__(self, language_model: Any, lm_head: torch.nn.Linear) -> None:
        """Take over a loaded text model and its output projection.

        Raises:
            UnsupportedCheckpoint: it is another kind of model, or does something that packed
                attention does not.
        """
        config = language_model.config
        if config.model_type != TEXT_MODEL_TYPE:
            raise UnsupportedCheckpoint(
                f"text model {config.model_type!r} is not supported; supported is {TEXT_MODEL_TYPE}"
            )
        check_rope(config)
        super().__init__(language_model, lm_head)
        pack_layers(language_model, kept=("kv_b_proj",))  # `_attend` needs that one's weight
        AttentionInterface.register(ATTENTION_NAME, _attend)
        language_model.set_attn_implementation(ATTENTION_NAME)
        for layer in language_model.layers:
            layer.self_attn.expand_kv = _keep_latent
        key_dim = config.kv_lora_rank + config.qk_rope_head_dim
        spec = LayerKv(num_heads=1, key_dim=key_dim, value_dim=config.kv_lora_rank, is_latent=True)
        self.kv_spec = (spec,) * len(language_model.layers)
        self.num_deepstack_levels = 0
        self.num_axes = 1
        self.is_recordable = False  # which experts have work is asked in every layer

    def forward(
        self,
        embeddings: Tensor,
        positions: Tensor,
        attention: Attention,
        visual: VisualRows | None,
    ) -> Tensor:
        """Run the layers; see `Decoder.forward`."""
        assert visual is None, "the family has no deepstack"
        self._crew.call(len(embeddings))
        output = self._language_model(
            inputs_embeds=embeddings[None],
            position_ids=positions,  # its one axis stands for the one batch entry
            use_cache=False,
            packed=attention,
        )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden


def _keep_latent(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    """Stands in for the library's expansion to heads; `_attend` gets what it is given."""
    return latent, rotated


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
    """The library's attention hook, in the latent space.

    Args:
        module: the layer's attention.
        query: [1, heads, tokens, plain + rotary dim], the rotary part rotated.
        key: the latents [1, 1, tokens, rank].
        value: the rotated key [1, 1, tokens, rotary dim] that all heads share.
        attention_mask: None.
        scaling: factor applied to the scores.
        packed: the step's attention.

    Returns:
        [1, tokens, heads, value dim], and no weights
    """
    plain_dim, value_dim = module.qk_nope_head_dim, module.v_head_dim
    # [heads, plain + value dim, rank]; what would expand a latent to plain keys and to values.
    weight = module.kv_b_proj.weight.unflatten(0, (-1, plain_dim + value_dim))
    to_plain, to_value = weight[:, :plain_dim], weight[:, plain_dim:]
    plain, rotary = query[0, ..., :plain_dim], query[0, ..., plain_dim:]
    output = packed.attend(
        module.layer_idx,
        torch.cat([plain @ to_plain, rotary], dim=-1),
        torch.cat([key[0], value[0]], dim=-1),
        None,
        scaling,
    )
    return (output.transpose(0, 1) @ to_value.transpose(1, 2)).transpose(0, 1)[None], None
