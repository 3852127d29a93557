"""Paged KV cache, and causal attention of many sequences over it in one call per layer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from workers.families.decoder import LayerKv


class KvCache:
    """Keys and values of every layer, in blocks. Owned by the runner.

    A slot is block * block_tokens + offset. Heads come first, as the decoders make them and as
    attention reads fastest. A latent layer has keys only; they are read as its values, too.
    """

    def __init__(
        self,
        spec: Sequence[LayerKv],
        num_blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.block_tokens = block_tokens
        self.spec = tuple(spec)
        self.spare_block = num_blocks  # of nobody; rows that only fill a step up write to it
        num_slots = (num_blocks + 1) * block_tokens
        # Each [heads, blocks * block tokens, dim].
        self._keys = [
            _zeros((layer.num_heads, num_slots, layer.key_dim), dtype, device) for layer in spec
        ]
        self._values = {
            index: _zeros((layer.num_heads, num_slots, layer.value_dim), dtype, device)
            for index, layer in enumerate(spec)
            if not layer.is_latent
        }

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor | None) -> None:
        """Store [heads, tokens, dim] of the tokens at `slots`, int64 [tokens].

        `value` is None for a latent layer.
        """
        assert (value is None) == self.spec[layer].is_latent, "a latent layer has keys only"
        self._keys[layer].index_copy_(1, slots, key)
        if value is not None:
            self._values[layer].index_copy_(1, slots, value)

    def read(self, layer: int, table: Tensor) -> tuple[Tensor, Tensor]:
        """Copy out the blocks of `table`, int64 [rows, blocks].

        Returns:
            keys and values, each [rows, heads, blocks * block tokens, dim]; the same tensor
            twice for a latent layer, with the values first in it
        """
        keys = self._gather(self._keys[layer], table)
        if self.spec[layer].is_latent:
            return keys, keys
        return keys, self._gather(self._values[layer], table)

    def stores(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer as they lie, each [heads, slots, dim]."""
        return self._keys[layer], self._values[layer]

    def pages(self, layer: int) -> tuple[Tensor, Tensor]:
        """Keys and values of a layer as they lie, each [blocks, heads, block tokens, dim]."""
        keys, values = self._blocks(self._keys[layer]), self._blocks(self._values[layer])
        return keys.transpose(0, 1), values.transpose(0, 1)

    def zero(self, block_ids: Tensor) -> None:
        """Wipe blocks, int64 [blocks]."""
        for store in (*self._keys, *self._values.values()):
            self._blocks(store).index_fill_(1, block_ids, 0)

    def _gather(self, store: Tensor, table: Tensor) -> Tensor:
        blocks = self._blocks(store).index_select(1, table.flatten())
        return blocks.view(len(store), len(table), -1, store.shape[-1]).transpose(0, 1)

    def _blocks(self, store: Tensor) -> Tensor:
        """A store by blocks: [heads, blocks, block tokens, dim]."""
        return store.view(len(store), -1, self.block_tokens, store.shape[-1])


@dataclass(frozen=True, slots=True)
class SingleRows:
    """Neighbouring rows that each are one token of another sequence, of similar context."""

    rows: slice
    table: Tensor  # [rows, blocks], int64; short contexts are padded with blocks of their own
    num_keys: int  # longest context among them, their own tokens included
    mask: Tensor | None  # [rows, 1, 1, num_keys], 0 or -inf; None when all are equally long


@dataclass(frozen=True, slots=True)
class ChunkRows:
    """Neighbouring rows that are consecutive tokens of one sequence."""

    rows: slice
    table: Tensor | None  # [1, blocks], int64; None when the chunk starts the sequence
    num_keys: int  # context, the chunk included
    mask: Tensor | None  # [rows, num_keys], 0 or -inf; None when the chunk starts the sequence


@dataclass(frozen=True, slots=True)
class PackedAttention:
    """Attention of one step; see `workers.families.decoder.Attention`.

    Made of torch operations that every device has. Lengths are Python numbers, so no layer
    waits for the device. In each layer all rows are kept before any row looks back, because the
    scheduler lets a sequence share blocks that another one fills in the same step.
    """

    cache: KvCache
    slots: Tensor  # [tokens], int64; where the step's keys and values go
    singles: tuple[SingleRows, ...]  # these and the chunks cover all rows, in order
    chunks: tuple[ChunkRows, ...]

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor | None, scale: float
    ) -> Tensor:
        """Keep the new keys and values of `layer`, then attend, causally per sequence."""
        self.cache.write(layer, self.slots, key, value)
        value_dim = self.cache.spec[layer].value_dim
        # A latent layer attends to whole keys: fast kernels want values as long as keys, and
        # what comes behind the values is cut off afterwards.
        value = key if value is None else value
        outputs = [self._attend_singles(layer, query, part, scale) for part in self.singles]
        outputs += [
            self._attend_chunk(layer, query, key, value, part, scale) for part in self.chunks
        ]
        output = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return output[..., :value_dim]

    def _attend_singles(self, layer: int, query: Tensor, part: SingleRows, scale: float) -> Tensor:
        key, value = self.cache.read(layer, part.table)
        key, value = key[:, :, : part.num_keys], value[:, :, : part.num_keys]
        rows = query[:, part.rows].transpose(0, 1)  # [rows, query heads, dim]
        # The query heads that share a key head see the same keys: they are its query tokens, and
        # keys need no copies.
        grouped = rows.reshape(len(rows), key.shape[1], -1, rows.shape[2])
        output = scaled_dot_product_attention(grouped, key, value, attn_mask=part.mask, scale=scale)
        return output.flatten(1, 2)

    def _attend_chunk(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, part: ChunkRows, scale: float
    ) -> Tensor:
        if part.table is None:
            keys, values = key[None, :, part.rows], value[None, :, part.rows]
        else:
            keys, values = self.cache.read(layer, part.table)
            keys, values = keys[:, :, : part.num_keys], values[:, :, : part.num_keys]
        if len(key) == 1:  # a view for every query head; kernels might copy it for each
            keys, values = (each.expand(-1, len(query), -1, -1) for each in (keys, values))
        output = scaled_dot_product_attention(
            query[None, :, part.rows],
            keys,
            values,
            attn_mask=part.mask,
            is_causal=part.mask is None,
            scale=scale,
            enable_gqa=True,
        )
        return output[0].transpose(0, 1)


def reference_attention(
    query: Tensor, key: Tensor, value: Tensor, num_context: int, scale: float
) -> Tensor:
    """Causal attention of one sequence, written out: what the fast paths are compared with.

    Args:
        query: [query heads, tokens, key dim]; the tokens after the first `num_context`.
        key: [heads, num_context + tokens, key dim].
        value: [heads, num_context + tokens, value dim].
        num_context: tokens of the sequence before the queries.
        scale: factor applied to the scores.

    Returns:
        [tokens, query heads, value dim]
    """
    copies = query.shape[0] // key.shape[0]
    key, value = key.repeat_interleave(copies, 0), value.repeat_interleave(copies, 0)
    scores = query @ key.transpose(1, 2) * scale
    hidden = torch.ones_like(scores, dtype=torch.bool).triu(num_context + 1)
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
    return (weights @ value).transpose(0, 1)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy asks the system for zero pages, so memory is used as blocks are; torch writes zeros.
    num_bytes = int(np.prod(shape)) * dtype.itemsize
    return torch.from_numpy(np.zeros(num_bytes, np.uint8)).view(dtype).view(shape)
