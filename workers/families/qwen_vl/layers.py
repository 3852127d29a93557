"""Layers of the decoder as we compute them: the library's weights in fewer and larger steps."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from workers.families.decoder import Attention
from workers.families.norms import norm_of
from workers.families.products import product_of
from workers.families.rotation import Rotation

Norm = Callable[[Tensor], Tensor]


class DecoderLayer:
    """One layer of the library's, with its arithmetic.

    A step that decodes a few rows consists of many small operations, and their number is what it
    costs: queries, keys and values are one product here, and steps that follow a product are part
    of it where that is quicker. It is no torch module, because each look-up and call of one takes
    as long as a small operation.
    """

    def __init__(self, layer: Any, index: int) -> None:
        """Take over the weights of `layer`, which is of no use afterwards."""
        attention, mlp = layer.self_attn, layer.mlp
        self._index = index
        self._head_width: int = attention.head_dim
        self._scale: float = attention.scaling
        num_queries, num_keys = (
            attention.config.num_attention_heads,
            attention.config.num_key_value_heads,
        )
        self._heads: list[int] = [num_queries, num_keys, num_keys]  # and values
        self.input_norm = norm_of(layer.input_layernorm)
        self.qkv = product_of(attention.q_proj, attention.k_proj, attention.v_proj)
        self.query_key_norm = _norms_of(attention)
        self.output = product_of(attention.o_proj)
        self.mlp_norm = norm_of(layer.post_attention_layernorm)
        self.gate = product_of(mlp.gate_proj)
        self.up = product_of(mlp.up_proj)
        self.down = product_of(mlp.down_proj)

    def __call__(self, hidden: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        mixed = self._attend(self.input_norm(hidden), rotation, attention)
        hidden = self.output.plus(mixed, hidden)
        normed = self.mlp_norm(hidden)
        inner = self.up.times(normed, self.gate.silu(normed))
        return self.down.plus(inner, hidden)

    def _attend(self, normed: Tensor, rotation: Rotation, attention: Attention) -> Tensor:
        heads = self.qkv(normed).view(normed.shape[0], -1, self._head_width)
        query, key, value = torch.split_with_sizes(heads, self._heads, dim=1)
        if self.query_key_norm is not None:
            query_norm, key_norm = self.query_key_norm
            turned = torch.cat([query_norm(query), key_norm(key)], dim=1)
        else:
            turned = heads[:, : -self._heads[-1]]
        by_head = rotation.turn(turned).transpose(0, 1)
        query, key = torch.split_with_sizes(by_head, self._heads[:2])
        mixed = attention.attend(self._index, query, key, value.transpose(0, 1), self._scale)
        return mixed.flatten(1)


def _norms_of(attention: Any) -> tuple[Norm, Norm] | None:
    """Those of queries and keys, in a checkpoint that has them."""
    if not hasattr(attention, "q_norm"):
        return None
    return norm_of(attention.q_norm), norm_of(attention.k_norm)
