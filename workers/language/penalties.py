"""Logits in, the same changed by the tokens that a sequence already holds."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.language.sequence import Sequence
from workers.sampling import Sampling

_FIRST_ROWS = 8
# A count holds whether the token is in the prompt, and twice how often it was chosen.
_IN_PROMPT = 1
_CHOSEN = 2


@dataclass(slots=True)
class _Row:
    index: int
    num_tokens: int = 0  # that are counted
    num_held: int = 0  # entries of `_held` that count; an answer's may stand there twice


def has_penalties(sampling: Sampling) -> bool:
    """Whether tokens of the past change what is chosen."""
    return (
        sampling.repetition_penalty != 1
        or sampling.frequency_penalty != 0
        or sampling.presence_penalty != 0
    )


def penalise(scores: Tensor, counts: Tensor, samplings: tuple[Sampling, ...]) -> Tensor:
    """Apply first the repetition, then the frequency and presence penalties.

    The repetition penalty divides positive scores and multiplies negative ones of all tokens in
    prompt and answer, as in CTRL (arXiv 1909.05858), transformers and vLLM. The others follow
    OpenAI's API reference: of each token of the answer, the score loses frequency_penalty as often
    as the token was chosen, and presence_penalty once.

    Args:
        scores: float32 [rows, tokens], of tokens that the rows' sequences hold.
        counts: int32 [rows, tokens], as in `TokenCounts`.
        samplings: one for each row.

    Returns:
        float32 [rows, tokens]
    """
    repetition, frequency, presence = torch.tensor(
        [
            (each.repetition_penalty, each.frequency_penalty, each.presence_penalty)
            for each in samplings
        ],
        dtype=scores.dtype,
        device=scores.device,
    ).T[:, :, None]
    scores = torch.where(scores > 0, scores / repetition, scores * repetition)
    num_chosen = counts >> 1
    return scores.sub_(frequency * num_chosen).sub_(presence * (num_chosen > 0))


class TokenCounts:
    """Which tokens sequences hold, and how often: a row for each sequence, on the device.

    Rows grow with the answer, and only tokens that a sequence holds are ever looked at. They are
    a cache: a sequence that has lost its row, or was away, is counted anew from its tokens. Owned
    by the sampler.
    """

    def __init__(self, max_rows: int) -> None:
        """`max_rows` sequences at most are asked for at once."""
        self._max_rows = max_rows
        self._counts = torch.empty((0, 0), dtype=torch.int32)  # [rows, vocab]
        # [rows, width], all the tokens that a sequence holds; what is left over repeats the first
        self._held = torch.empty((0, 0), dtype=torch.int64)
        self._rows: OrderedDict[str, _Row] = OrderedDict()  # by job id, the latest used last
        self._free: list[int] = []

    def penalise(self, logits: Tensor, rows: list[int], sequences: tuple[Sequence, ...]) -> None:
        """Change these rows of float32 [rows, vocab], in place, as their sequences ask."""
        found = [self._row(sequence, logits) for sequence in sequences]
        places = torch.tensor([row.index for row in found], device=logits.device)[:, None]
        held = self._held[places[:, 0], : max(row.num_held for row in found)]
        index = torch.tensor(rows, device=logits.device)[:, None]
        samplings = tuple(sequence.sampling for sequence in sequences)
        # A token may stand there twice; then the same is written twice.
        logits[index, held] = penalise(logits[index, held], self._counts[places, held], samplings)

    def add(self, sequences: tuple[Sequence, ...], token_ids: Tensor) -> None:
        """Count the tokens that were chosen for sequences just penalised, int64 [sequences]."""
        rows = [self._rows[sequence.job_id] for sequence in sequences]
        self._widen(1 + max(row.num_held for row in rows))
        places, ends = torch.tensor(
            [(row.index, row.num_held) for row in rows], device=token_ids.device
        ).T
        self._held[places, ends] = token_ids
        self._counts[places, token_ids] += _CHOSEN
        for row in rows:
            row.num_tokens += 1
            row.num_held += 1

    def forget(self, job_id: str) -> None:
        """Free the row of a sequence that has ended, if it has one."""
        row = self._rows.pop(job_id, None)
        if row is not None:
            self._free.append(row.index)

    def _row(self, sequence: Sequence, logits: Tensor) -> _Row:
        row = self._rows.get(sequence.job_id)
        if row is None:
            row = self._rows[sequence.job_id] = _Row(self._take(logits))
        self._rows.move_to_end(sequence.job_id)
        if row.num_tokens != sequence.num_tokens:
            self._count(row, sequence)
        return row

    def _take(self, logits: Tensor) -> int:
        if not self._free and len(self._rows) >= self._max_rows:
            return self._rows.popitem(last=False)[1].index
        if not self._free:
            self._lengthen(logits)
        return self._free.pop()

    def _lengthen(self, logits: Tensor) -> None:
        first = len(self._counts)
        num_rows = min(max(_FIRST_ROWS, 2 * first), self._max_rows)
        shape = (num_rows, logits.shape[-1])
        counts = torch.zeros(shape, dtype=self._counts.dtype, device=logits.device)
        held = torch.zeros(
            (num_rows, self._held.shape[1]), dtype=self._held.dtype, device=logits.device
        )
        if first:
            counts[:first] = self._counts
            held[:first] = self._held
        self._counts, self._held = counts, held
        self._free += reversed(range(first, num_rows))

    def _widen(self, width: int) -> None:
        if width > self._held.shape[1]:
            held = torch.zeros(
                (len(self._held), 2 * width), dtype=self._held.dtype, device=self._held.device
            )
            num_old = self._held.shape[1]
            held[:, :num_old] = self._held
            if num_old:
                held[:, num_old:] = self._held[:, :1]
            self._held = held

    def _count(self, row: _Row, sequence: Sequence) -> None:
        ids = np.asarray(sequence.token_ids)
        counts = np.bincount(ids[sequence.num_prompt_tokens :], minlength=self._counts.shape[1])
        counts = (counts * _CHOSEN).astype(np.int32)
        counts[ids[: sequence.num_prompt_tokens]] += _IN_PROMPT
        self._counts[row.index] = torch.from_numpy(counts).to(self._counts.device)
        held = counts.nonzero()[0]
        self._widen(len(held))
        self._held[row.index] = int(held[0])
        self._held[row.index, : len(held)] = torch.from_numpy(held).to(self._held.device)
        row.num_tokens, row.num_held = sequence.num_tokens, len(held)
