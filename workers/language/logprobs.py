"""Logits and chosen tokens in, how likely the model held them and others to be out."""

from collections.abc import Sequence

from torch import Tensor

from workers.sampling import Likelihood


def likelihoods(logprobs: Tensor, token_ids: Tensor, num_top: Sequence[int]) -> list[Likelihood]:
    """Look the chosen and the likeliest tokens up.

    Args:
        logprobs: float32 [rows, vocab], logarithms of probabilities.
        token_ids: int64 [rows], the chosen token of each row.
        num_top: for each row, how many of the likeliest tokens to tell, which may be none.

    Returns:
        one for each row; of equals at the last place that is told, any may be told
    """
    chosen = logprobs.gather(-1, token_ids[:, None])[:, 0].tolist()
    width = min(max(num_top), logprobs.shape[-1])
    if width == 0:
        return [Likelihood(logprob, ()) for logprob in chosen]
    ids = logprobs.topk(width).indices.sort(-1).values  # equals by their ids
    values, order = logprobs.gather(-1, ids).sort(dim=-1, descending=True, stable=True)
    table = zip(ids.gather(-1, order).tolist(), values.tolist(), strict=True)
    return [
        Likelihood(logprob, tuple(zip(best[:count], best_logprobs[:count], strict=True)))
        for logprob, count, (best, best_logprobs) in zip(chosen, num_top, table, strict=True)
    ]
