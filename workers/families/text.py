"""What the decoders of all families share: the library's modules, fed with packed sequences."""

from typing import Any

import torch
from torch import Tensor

from workers.families.crew import Crew
from workers.families.products import product_of


class PackedText:
    """The part of `workers.families.decoder.Decoder` that is the same for every family.

    Modules see no cache and no mask, and always explicit positions, so that nothing remembered on
    one can leak from one step into another.
    """

    def __init__(self, language_model: Any, lm_head: torch.nn.Linear) -> None:
        """Take over a loaded text model of the library's and its output projection."""
        embedding = language_model.embed_tokens
        self.hidden_size: int = embedding.embedding_dim
        self.vocab_size: int = embedding.num_embeddings
        self.device: torch.device = embedding.weight.device
        self.dtype: torch.dtype = embedding.weight.dtype
        self._language_model = language_model.eval()
        self._crew = Crew(language_model)
        self._lm_head = product_of(lm_head)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed token ids, int64 [tokens] -> [tokens, hidden]."""
        embeddings: Tensor = self._language_model.embed_tokens(ids)
        return embeddings

    def logits(self, hidden: Tensor) -> Tensor:
        """Score every token after each row, [rows, hidden] -> float32 [rows, vocab]."""
        scores: Tensor = self._lm_head(hidden)
        return scores.float()
