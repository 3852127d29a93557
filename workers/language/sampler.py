"""Logits and wishes in, one token per row out; the same for a request whatever runs beside it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.messages import Sampling


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose one row's token."""

    sampling: Sampling
    index: int  # tokens of the answer before this one


@torch.inference_mode()
def choose(logits: Tensor, draws: Sequence[Draw]) -> list[int | None]:
    """Choose a token for each row of float32 [rows, vocab].

    Temperature 0 takes the likeliest, the lowest id among equals. Else temperature, top_k and
    top_p apply in this order, and the draw depends on nothing but logits, seed and index.

    Returns:
        token ids; None for a row that has no finite maximum.
    """
    best, ids = logits.max(dim=-1)
    plain: list[int] = []
    cut: list[int] = []
    for row, draw in enumerate(draws):
        if draw.sampling.temperature > 0:
            (cut if _is_cut(draw.sampling) else plain).append(row)
    for rows, draw_rows in ((plain, _draw_from_all), (cut, _draw_from_best)):
        if rows:
            index = torch.tensor(rows, device=logits.device)
            scores = logits[index] - best[index, None]
            ids[index] = draw_rows(scores, [draws[row] for row in rows])
    chosen, is_finite = torch.stack((ids, best.isfinite().long())).tolist()
    return [token if finite else None for token, finite in zip(chosen, is_finite, strict=True)]


def _is_cut(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1


def _draw_from_all(scores: Tensor, draws: list[Draw]) -> Tensor:
    """Draw a token for each row of [rows, vocab]. Returns int64 [rows]."""
    scores = scores / _column([draw.sampling.temperature for draw in draws], scores)
    return _invert(scores, draws)


def _draw_from_best(scores: Tensor, draws: list[Draw]) -> Tensor:
    """The same after top_k and top_p; the only way that has to sort."""
    scores = scores / _column([draw.sampling.temperature for draw in draws], scores)
    ordered, order = scores.sort(dim=-1, descending=True, stable=True)
    _keep_top_k(ordered, [draw.sampling.top_k for draw in draws])
    _keep_top_p(ordered, [draw.sampling.top_p for draw in draws])
    return order.gather(-1, _invert(ordered, draws)[:, None])[:, 0]


def _keep_top_k(ordered: Tensor, limits: list[int]) -> None:
    """Cut scores [rows, vocab], largest first, below the k-th; equals of the k-th stay."""
    size = ordered.shape[-1]
    last = torch.tensor([min(limit or size, size) - 1 for limit in limits], device=ordered.device)
    ordered.masked_fill_(ordered < ordered.gather(-1, last[:, None]), -torch.inf)


def _keep_top_p(ordered: Tensor, limits: list[float]) -> None:
    """Cut scores [rows, vocab], largest first, after the fewest whose mass reaches the limit."""
    mass = ordered.double().softmax(-1)
    before = mass.cumsum(-1) - mass
    limit = _column([limit if limit < 1 else torch.inf for limit in limits], before)
    is_cut = before >= limit
    is_cut[:, 0] = False
    ordered.masked_fill_(is_cut, -torch.inf)


def _invert(scores: Tensor, draws: list[Draw]) -> Tensor:
    """Indices where the cumulative distributions of [rows, vocab] pass the rows' numbers."""
    mass = scores.double().softmax(-1).cumsum(-1)
    target = mass[:, -1:] * _column([_uniform(draw) for draw in draws], mass)
    # A row of NaN finds nothing; it is refused later, but its index has to exist.
    return torch.searchsorted(mass, target, right=True)[:, 0].clamp(max=scores.shape[-1] - 1)


def _uniform(draw: Draw) -> float:
    """A number in [0, 1) that seed and index alone decide."""
    text = f"{draw.sampling.seed}:{draw.index}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return float((number >> 11) * 2.0**-53)


def _column(values: list[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
