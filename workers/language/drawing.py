"""Scores in, a token for each row out: the likeliest, or drawn by a seed."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.sampling import Sampling

# Best tokens that are sorted first, and then if those were too few: a whole vocabulary is slow.
NUM_CANDIDATES = (64, 1024)


@dataclass(frozen=True, slots=True)
class Draw:
    """How to choose one row's token."""

    sampling: Sampling
    index: int  # tokens of the answer before this one


def draw(scores: Tensor, draws: Sequence[Draw]) -> tuple[Tensor, Tensor]:
    """Choose a token for each row of float32 [rows, vocab].

    Temperature 0 takes the likeliest, the lowest id among equals. Else temperature, top_k, top_p
    and min_p apply in this order, which is that of transformers; min_p drops what is less likely
    than that share of the likeliest (arXiv 2407.01082). The draw depends on nothing but scores,
    seed and index.

    Returns:
        int64 [rows], and float32 [rows]: the best score, which is finite unless the row is faulty
    """
    best, ids = _best(scores)
    plain: list[int] = []
    cut: list[int] = []
    for row, each in enumerate(draws):
        if each.sampling.temperature > 0:
            (cut if _is_cut(each.sampling) else plain).append(row)
    for rows, draw_rows in ((plain, _draw_from_all), (cut, _draw_from_best)):
        if rows:
            index = torch.tensor(rows, device=scores.device)
            shifted = scores[index] - best[index, None]
            ids[index] = draw_rows(shifted, [draws[row] for row in rows])
    return ids, best


def _best(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The largest of each row, or NaN where there is one; and the first place where it is."""
    if scores.device.type != "cpu":
        return scores.max(dim=-1)
    # numpy looks at many numbers at once: 16 rows of 4096 take 5 us, and 58 us in torch.
    ids = torch.from_numpy(scores.numpy().argmax(axis=-1))
    return scores.gather(-1, ids[:, None])[:, 0], ids


def _is_cut(sampling: Sampling) -> bool:
    return sampling.top_k > 0 or sampling.top_p < 1 or sampling.min_p > 0


def _draw_from_all(scores: Tensor, draws: list[Draw]) -> Tensor:
    """Draw a token for each row of [rows, vocab]. Returns int64 [rows]."""
    scores = scores / _column([each.sampling.temperature for each in draws], scores)
    return _invert(scores, draws)


def _draw_from_best(scores: Tensor, draws: list[Draw]) -> Tensor:
    """The same after top_k, top_p and min_p, which nearly always leave a few of the best."""
    scores = scores / _column([each.sampling.temperature for each in draws], scores)
    num_tokens = scores.shape[-1]
    found = torch.empty(len(draws), dtype=torch.int64, device=scores.device)
    left = list(range(len(draws)))
    for size in (*NUM_CANDIDATES, num_tokens):
        index = torch.tensor(left, device=scores.device)
        candidates = scores[index].topk(min(size, num_tokens)).indices
        tokens, is_certain = _draw_among(candidates, scores[index], [draws[row] for row in left])
        found[index] = tokens
        left = [row for row, certain in zip(left, is_certain.tolist(), strict=True) if not certain]
        if not left or size >= num_tokens:
            break
    return found


def _draw_among(candidates: Tensor, scores: Tensor, draws: list[Draw]) -> tuple[Tensor, Tensor]:
    """Draw from candidate ids [rows, candidates], none of which is worse than any other token.

    Returns:
        int64 [rows], and bool [rows]: whether more candidates could not have changed it
    """
    candidates = candidates.sort(-1).values  # equals stay in the order of their ids
    ordered, order = scores.gather(-1, candidates).sort(dim=-1, descending=True, stable=True)
    worst = ordered[:, -1].clone()
    _keep_top_k(ordered, [each.sampling.top_k for each in draws])
    has_top_k = torch.tensor([each.sampling.top_k > 0 for each in draws], device=scores.device)
    least_of_top_k = _least_kept(ordered)
    # The best score is 0, so no exponential overflows.
    of_all = scores.exp().sum(-1, dtype=torch.float64)
    of_kept = ordered.exp().sum(-1, dtype=torch.float64)
    _keep_top_p(ordered, torch.where(has_top_k, of_kept, of_all), draws)
    _keep_min_p(ordered, draws)
    # With top_k the mass that top_p cuts is that of the kept, so they have to be all there.
    is_certain = torch.where(has_top_k, least_of_top_k, _least_kept(ordered)) > worst
    tokens = candidates.gather(-1, order.gather(-1, _invert(ordered, draws)[:, None]))
    return tokens[:, 0], is_certain


def _keep_top_k(ordered: Tensor, limits: list[int]) -> None:
    """Cut scores [rows, candidates], largest first, below the k-th; equals of the k-th stay."""
    size = ordered.shape[-1]
    last = torch.tensor([min(limit or size, size) - 1 for limit in limits], device=ordered.device)
    ordered.masked_fill_(ordered < ordered.gather(-1, last[:, None]), -torch.inf)


def _keep_top_p(ordered: Tensor, total: Tensor, draws: list[Draw]) -> None:
    """Cut scores [rows, candidates], largest first, after the fewest whose mass reaches top_p.

    `total` is what the exponentials of all scores of a row add up to, float64 [rows].
    """
    mass = ordered.double().exp() / total[:, None]
    before = mass.cumsum(-1) - mass
    limits = [each.sampling.top_p if each.sampling.top_p < 1 else torch.inf for each in draws]
    is_cut = before >= _column(limits, before)
    is_cut[:, 0] = False
    ordered.masked_fill_(is_cut, -torch.inf)


def _keep_min_p(ordered: Tensor, draws: list[Draw]) -> None:
    """Cut scores [rows, candidates], of which the best is 0, that are too far below it."""
    shares = [each.sampling.min_p for each in draws]
    limits = [math.log(share) if share > 0 else -math.inf for share in shares]
    ordered.masked_fill_(ordered < _column(limits, ordered), -torch.inf)


def _least_kept(ordered: Tensor) -> Tensor:
    return ordered.masked_fill(ordered.isneginf(), torch.inf).amin(-1)


def _invert(scores: Tensor, draws: list[Draw]) -> Tensor:
    """Indices where the cumulative distributions of [rows, vocab] pass the rows' numbers."""
    mass = scores.double().softmax(-1).cumsum(-1)
    target = mass[:, -1:] * _column([_uniform(each) for each in draws], mass)
    # A row of NaN finds nothing; it is refused later, but its index has to exist.
    return torch.searchsorted(mass, target, right=True)[:, 0].clamp(max=scores.shape[-1] - 1)


def _uniform(each: Draw) -> float:
    """A number in [0, 1) that seed and index alone decide."""
    text = f"{each.sampling.seed}:{each.index}".encode()
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
    return float((number >> 11) * 2.0**-53)


def _column(values: list[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device)[:, None]
