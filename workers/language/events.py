"""What an engine tells of a sequence, as messages."""

from typing import Literal

from workers.language.sampler import Choice
from workers.language.sequence import Sequence
from workers.messages import Finished, Started, Tokens


def started(sequence: Sequence) -> Started:
    """All of the prompt is computed, and the first token is chosen."""
    return Started(job_id=sequence.job_id, num_cached_tokens=sequence.num_cached_tokens)


def chosen(sequence: Sequence, choice: Choice) -> Tokens:
    """One more token of the answer."""
    told = () if choice.likelihood is None else (choice.likelihood,)
    return Tokens(job_id=sequence.job_id, token_ids=(choice.token_id,), likelihoods=told)


def finished(sequence: Sequence, reason: Literal["stop", "length", "abort"]) -> Finished:
    """The answer is whole."""
    return Finished(
        job_id=sequence.job_id,
        reason=reason,
        num_prompt_tokens=sequence.num_prompt_tokens,
        num_completion_tokens=sequence.num_completion_tokens,
    )
