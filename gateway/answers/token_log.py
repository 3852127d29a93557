"""Tokens of an answer with their likelihoods in, entries of OpenAI's `logprobs` out."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from gateway.answers.spelling import Speller
from workers.families.answers import Words
from workers.sampling import Likelihood

# JSON has no infinity; OpenAI says this of tokens that the model rules out.
_LEAST_LOGPROB = -9999.0

Entry = dict[str, Any]


class TokenLog:
    """Gives each token's entry out with the words that show its beginning.

    So an entry is never told of a token that a stop string hides, nor of a special one, nor of
    thoughts and calls. Owned by the request's task.
    """

    def __init__(self, speller: Speller) -> None:
        self._speller = speller
        # First character; entry, but for a special token, which is only the end of another.
        self._waiting: deque[tuple[int, Entry | None]] = deque()

    def add(self, token_id: int, likelihood: Likelihood, start: int) -> None:
        """Take the next token; `start` counts the answer's whole characters before it."""
        entry: Entry | None = None
        if not self._speller.is_special(token_id):
            top = [self._entry(each, logprob) for each, logprob in likelihood.top]
            entry = self._entry(token_id, likelihood.logprob) | {"top_logprobs": top}
        self._waiting.append((start, entry))

    def take(self, given: Iterable[Words]) -> list[Entry]:
        """The entries of tokens that begin or go on in words which were given just now."""
        return [entry for words in given for entry in self._take(words)]

    def _take(self, words: Words) -> list[Entry]:
        taken = []
        while self._waiting and self._waiting[0][0] < words.start + len(words.text):
            taken.append(self._waiting.popleft())
        # The words begin with a token, or within the last one that begins before them.
        first = max((start for start, _ in taken if start <= words.start), default=0)
        return [entry for start, entry in taken if start >= first and entry is not None]

    def _entry(self, token_id: int, logprob: float) -> Entry:
        """A token may end within a character, of which its bytes are right and its text is not."""
        spelling = self._speller.spell(token_id)
        return {
            "token": spelling.decode(errors="replace"),
            "logprob": max(logprob, _LEAST_LOGPROB),
            "bytes": None if self._speller.is_special(token_id) else list(spelling),
        }
