"""What the decoders of all families share: the library's modules, fed with packed sequences."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface


class PackedText:
    """The part of `workers.families.decoder.Decoder` that is the same for every family.

    The modules stay as they were loaded, only their attention is routed to the step's
    `Attention`. They see no cache and no mask, and always explicit positions, so that nothing
    remembered on a module can leak from one step into another.
    """

    def __init__(
        self,
        language_model: Any,
        lm_head: torch.nn.Module,
        attention: tuple[str, Callable[..., tuple[Tensor, None]]],
    ) -> None:
        """Take over a loaded text model and its output projection.

        Args:
            language_model: the library's.
            lm_head: from hidden states to scores.
            attention: the name under which the library shall know a hook, and the hook.
        """
        AttentionInterface.register(*attention)
        language_model.set_attn_implementation(attention[0])
        embedding = language_model.embed_tokens
        self.hidden_size: int = embedding.embedding_dim
        self.vocab_size: int = embedding.num_embeddings
        self.device: torch.device = embedding.weight.device
        self.dtype: torch.dtype = embedding.weight.dtype
        self._language_model = language_model.eval()
        self._lm_head = lm_head.eval()

    def embed(self, ids: Tensor) -> Tensor:
        """Embed token ids, int64 [tokens] -> [tokens, hidden]."""
        embeddings: Tensor = self._language_model.embed_tokens(ids)
        return embeddings

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every token after each row, [rows, hidden] -> float32 [rows, vocab]."""
        scores: Tensor = self._lm_head(hidden)
        return scores.float()
