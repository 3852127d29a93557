"""Likelihoods of a prompt's own tokens in, as they come, OpenAI's older `logprobs` of them out."""

from collections.abc import Iterable

import numpy as np

from gateway.answers.old_log import OldLog
from gateway.answers.spelling import Speller, name_of
from gateway.answers.token_log import bounded
from gateway.prompts.text import PromptTokens
from workers.sampling import Likelihood


class PromptLog:
    """Names the tokens of one prompt. Owned by the request's task.

    What comes is written down at once, so that a long prompt is no long work at its end.
    """

    def __init__(self, speller: Speller, tokens: PromptTokens) -> None:
        """`tokens` know where each of them begins."""
        self._speller = speller
        self._ids = np.frombuffer(tokens.token_ids, "<i4").tolist()
        self._starts = tokens.starts
        self._names: dict[int, str] = {}
        self.told = OldLog()
        self.told.begin(self._name(self._ids[0]), self._starts[0])

    def add(self, likelihoods: Iterable[Likelihood]) -> None:
        """Take those of the next tokens."""
        for likelihood in likelihoods:
            index = len(self.told.tokens)
            top = [(self._name(each), bounded(logprob)) for each, logprob in likelihood.top]
            name = self._name(self._ids[index])
            self.told.add(name, bounded(likelihood.logprob), top, self._starts[index])

    def _name(self, token_id: int) -> str:
        name = self._names.get(token_id)
        if name is None:
            name = self._names[token_id] = name_of(self._speller.spell(token_id))
        return name
