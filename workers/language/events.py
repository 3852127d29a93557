"""What an engine tells of a sequence, as messages."""

from collections.abc import Iterator
from typing import Literal

from workers.language.sampler import Choice
from workers.language.sequence import Sequence
from workers.messages import Finished, Scored, Started, Tokens
from workers.sampling import Likelihood

MAX_SCORES = 256  # in one message, so that none is long


def started(sequence: Sequence) -> Started:
    """All of the prompt is computed, and the first token is chosen."""
    return Started(job_id=sequence.job_id, num_cached_tokens=sequence.num_cached_tokens)


def scored(sequence: Sequence, found: tuple[Likelihood, ...]) -> Iterator[Scored]:
    """The likelihoods of the prompt's next tokens."""
    for start in range(0, len(found), MAX_SCORES):
        yield Scored(job_id=sequence.job_id, likelihoods=found[start : start + MAX_SCORES])


def chosen(sequence: Sequence, choice: Choice) -> Tokens:
    """One more token of the answer."""
    told = () if choice.likelihood is None else (choice.likelihood,)
    return Tokens(job_id=sequence.job_id, token_ids=(choice.token_id,), likelihoods=told)


def finished(
    sequence: Sequence, reason: Literal["stop", "length", "abort"], stop: Choice | None
) -> Finished:
    """The answer is whole; `stop` is the token that has stopped it, if one has."""
    return Finished(
        job_id=sequence.job_id,
        reason=reason,
        num_prompt_tokens=sequence.num_prompt_tokens,
        num_completion_tokens=sequence.num_completion_tokens,
        stop=(stop.token_id, stop.likelihood) if stop and stop.likelihood else None,
    )
