"""Logits and sequences in, the next token of each out; the same whatever runs beside it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.language.drawing import Draw, draw
from workers.language.forbidding import forbid
from workers.language.logprobs import likelihoods
from workers.language.penalties import TokenCounts, has_penalties
from workers.language.sequence import Sequence
from workers.sampling import BIAS_FIELDS, Likelihood

BIAS = np.dtype(BIAS_FIELDS)


@dataclass(frozen=True, slots=True)
class Choice:
    """A chosen token, and how likely it was if that was asked for."""

    token_id: int
    likelihood: Likelihood | None


class Sampler:
    """Chooses tokens for one engine. Owned by the engine.

    The steps are vLLM's, in its order: a grammar forbids tokens (`forbidding.py`), `min_tokens`
    keeps tokens that stop the answer from being chosen, `logit_bias` is added, penalties apply
    (`penalties.py`), and the token is drawn (`drawing.py`). Logprobs are those of the logits as
    they came, as in vLLM. A row that asks for none of it costs none of it.
    """

    def __init__(self, max_rows: int) -> None:
        """`max_rows` sequences at most choose at once."""
        self._counts = TokenCounts(max_rows)

    @torch.inference_mode()
    def choose(self, logits: Tensor, sequences: tuple[Sequence, ...]) -> list[Choice | None]:
        """Choose a token for each row of float32 [rows, vocab], which may be written to.

        Returns:
            a choice for each sequence; None for a row that has no finite maximum
        """
        told = [row for row, each in enumerate(sequences) if each.sampling.logprobs]
        raw = _rows(logits, told).log_softmax(-1) if told else None
        forbid(logits, sequences)
        _hide_stops(logits, sequences)
        _add_biases(logits, sequences)
        ids, best = self._draw(logits, sequences)
        found: dict[int, Likelihood] = {}
        if raw is not None:
            num_top = [sequences[row].sampling.top_logprobs for row in told]
            found = dict(zip(told, likelihoods(raw, _rows(ids, told), num_top), strict=True))
        chosen, is_finite = torch.stack((ids, best.isfinite().long())).tolist()
        return [
            Choice(token_id, found.get(row)) if finite else None
            for row, (token_id, finite) in enumerate(zip(chosen, is_finite, strict=True))
        ]

    def forget(self, sequence: Sequence) -> None:
        """Let go of what is kept of a sequence that has ended."""
        self._counts.forget(sequence.job_id)

    def _draw(self, logits: Tensor, sequences: tuple[Sequence, ...]) -> tuple[Tensor, Tensor]:
        draws = [Draw(each.sampling, each.num_completion_tokens) for each in sequences]
        penalised = [row for row, each in enumerate(draws) if has_penalties(each.sampling)]
        if not penalised:
            return draw(logits, draws)
        counted = tuple(sequences[row] for row in penalised)
        self._counts.penalise(logits, penalised, counted)
        ids, best = draw(logits, draws)
        self._counts.add(counted, _rows(ids, penalised))
        return ids, best


def _rows(table: Tensor, rows: list[int]) -> Tensor:
    return table[torch.tensor(rows, device=table.device)]


def _hide_stops(logits: Tensor, sequences: tuple[Sequence, ...]) -> None:
    places = [
        (row, token_id)
        for row, each in enumerate(sequences)
        if each.num_completion_tokens < each.sampling.min_tokens
        for token_id in each.sampling.stop_token_ids
    ]
    if places:
        rows, ids = torch.tensor(places, device=logits.device).T
        logits[rows, ids] = -torch.inf


def _add_biases(logits: Tensor, sequences: tuple[Sequence, ...]) -> None:
    rows, biases = [], []
    for row, each in enumerate(sequences):
        if each.sampling.logit_bias:
            biases.append(np.frombuffer(each.sampling.logit_bias, BIAS))
            rows.append(np.full(len(biases[-1]), row))
    if not biases:
        return
    bias = np.concatenate(biases)
    places = torch.from_numpy(np.stack((np.concatenate(rows), bias["token_id"])))
    values = torch.from_numpy(np.ascontiguousarray(bias["bias"]))
    row_index, ids = places.to(logits.device)
    logits.index_put_((row_index, ids), values.to(logits.device), accumulate=True)
