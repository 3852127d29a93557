"""Logits in, the same changed by the tokens that a sequence already holds."""

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from workers.language.sequence import Sequence
from workers.messages import Sampling

_FIRST_ROWS = 8
_IN_PROMPT = (
    1  # a count holds whether the token is in the prompt, and twice how often it was chosen
)
_CHOSEN = 2


@dataclass(slots=True)
class _Row:
    index: int
    num_tokens: int  # that are counted


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
        scores: float32 [rows, vocab].
        counts: int32 [rows, vocab], of a `TokenCounts`.
        samplings: one for each row.

    Returns:
        float32 [rows, vocab]
    """
    repetition, frequency, presence = torch.tensor(
        [
            (each.repetition_penalty, each.frequency_penalty, each.presence_penalty)
            for each in samplings
        ],
        dtype=scores.dtype,
        device=scores.device,
    ).T[:, :, None]
    repeated = torch.where(scores > 0, scores / repetition, scores * repetition)
    scores = torch.where(counts > 0, repeated, scores)
    num_chosen = counts // _CHOSEN
    return scores.sub_(frequency * num_chosen).sub_(presence * (num_chosen > 0))


class TokenCounts:
    """Which tokens sequences hold, and how often: a row for each sequence, on the device.

    Rows grow with the answer. They are a cache: a sequence that has lost its row, or was away, is
    counted anew from its tokens. Owned by the sampler.
    """

    def __init__(self, max_rows: int) -> None:
        """`max_rows` sequences at most are asked for at once."""
        self._max_rows = max_rows
        self._table = torch.empty((0, 0), dtype=torch.int32)
        self._rows: OrderedDict[str, _Row] = OrderedDict()  # by job id, the latest used last
        self._free: list[int] = []

    def rows(self, sequences: tuple[Sequence, ...], like: Tensor) -> Tensor:
        """Find or count the row of each sequence, for logits `like` [rows, vocab].

        Returns:
            int64 [sequences], for `counts` and `add`
        """
        indices = [self._row(sequence, like) for sequence in sequences]
        return torch.tensor(indices, device=like.device)

    def counts(self, rows: Tensor) -> Tensor:
        """The counts in rows, int32 [rows, vocab]."""
        return self._table[rows]

    def add(self, sequences: tuple[Sequence, ...], rows: Tensor, token_ids: Tensor) -> None:
        """Count the tokens that were chosen, int64 [rows], one for each sequence."""
        chosen = torch.full_like(token_ids, _CHOSEN, dtype=self._table.dtype)
        self._table.index_put_((rows, token_ids), chosen, accumulate=True)
        for sequence in sequences:
            self._rows[sequence.job_id].num_tokens += 1

    def forget(self, job_id: str) -> None:
        """Free the row of a sequence that has ended, if it has one."""
        row = self._rows.pop(job_id, None)
        if row is not None:
            self._free.append(row.index)

    def _row(self, sequence: Sequence, like: Tensor) -> int:
        row = self._rows.get(sequence.job_id)
        if row is None:
            row = self._rows[sequence.job_id] = _Row(self._take(like), 0)
        self._rows.move_to_end(sequence.job_id)
        if row.num_tokens != len(sequence.token_ids):
            self._table[row.index] = torch.from_numpy(_count(sequence, like.shape[-1])).to(
                like.device
            )
            row.num_tokens = len(sequence.token_ids)
        return row.index

    def _take(self, like: Tensor) -> int:
        if not self._free and len(self._rows) >= self._max_rows:
            return self._rows.popitem(last=False)[1].index
        if not self._free:
            self._grow(like)
        return self._free.pop()

    def _grow(self, like: Tensor) -> None:
        old = self._table
        size = min(max(_FIRST_ROWS, 2 * len(old)), self._max_rows)
        self._table = torch.zeros((size, like.shape[-1]), dtype=old.dtype, device=like.device)
        if len(old):
            self._table[: len(old)] = old
        self._free += reversed(range(len(old), size))


def _count(sequence: Sequence, vocab_size: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    ids = np.asarray(sequence.token_ids)
    answer = ids[sequence.num_prompt_tokens :]
    counts = _CHOSEN * np.bincount(answer, minlength=vocab_size).astype(np.int32)
    counts[ids[: sequence.num_prompt_tokens]] += _IN_PROMPT
    return counts
