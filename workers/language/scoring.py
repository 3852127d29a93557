"""Rows of prompts in, how likely the model held the tokens behind them to be out.

Logits of a whole step would be too many to hold: 2048 rows of 150 thousand take 1.2 GB. So some
rows at a time are scored, and only what is told of them is kept.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from workers.families.decoder import Decoder
from workers.language.logprobs import likelihoods
from workers.language.scheduler import Slice
from workers.language.sequence import Sequence
from workers.sampling import Likelihood

MAX_LOGIT_BYTES = 64 << 20  # of float32 logits that are held at once


@dataclass(frozen=True, slots=True)
class ScoredRows:
    """Consecutive rows of a step, those before some tokens of one prompt."""

    sequence: Sequence
    first_row: int
    token_ids: tuple[int, ...]  # of the tokens behind the rows


def rows_to_score(piece: Slice, first_row: int) -> ScoredRows | None:
    """The rows of a slice that tell of prompt tokens; `first_row` is the slice's own first."""
    asked = piece.sequence.unscored
    start, stop = max(piece.start + 1, asked.start), min(piece.end + 1, asked.stop)
    if start >= stop:
        return None
    token_ids = tuple(piece.sequence.token_ids[start:stop])
    return ScoredRows(piece.sequence, first_row + start - 1 - piece.start, token_ids)


def score(hidden: Tensor, rows: ScoredRows, decoder: Decoder) -> tuple[Likelihood, ...]:
    """Look up the tokens behind some rows of [step's rows, hidden], the decoder's last.

    Returns:
        one for each token; the logprob is NaN where the model gave no finite scores
    """
    found: list[Likelihood] = []
    num_at_once = max(1, MAX_LOGIT_BYTES // (4 * decoder.vocab_size))
    ids = torch.tensor(rows.token_ids, device=hidden.device)
    mine = hidden[rows.first_row : rows.first_row + len(ids)]
    num_top = rows.sequence.sampling.top_logprobs
    for start in range(0, len(ids), num_at_once):
        some, some_ids = (each[start : start + num_at_once] for each in (mine, ids))
        logprobs = decoder.logits(some).log_softmax(-1)
        found += likelihoods(logprobs, some_ids, [num_top] * len(some_ids))
    return tuple(found)
