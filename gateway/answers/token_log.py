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


def bounded(logprob: float) -> float:
    """A likelihood as JSON can tell it."""
    return max(logprob, _LEAST_LOGPROB)


class TokenLog:
    """Gives each token's entry out with the words that show its beginning.

    So an entry is never told of a token that a stop string hides, nor of a special one, nor of
    thoughts and calls. Owned by the request's task.
    """

    def __init__(self, speller: Speller, *, tells_special: bool = False) -> None:
        """`tells_special`: no token is left out but those that a stop string hides."""
        self._speller = speller
        self._tells_special = tells_special
        # First character; entry, but for a special token, which is only the end of another.
        self._waiting: deque[tuple[int, Entry | None]] = deque()

    def add(self, token_id: int, likelihood: Likelihood, start: int) -> None:
        """Take the next token; `start` counts the answer's whole characters before it."""
        entry: Entry | None = None
        if self._tells_special or not self._speller.is_special(token_id):
            top = [self._entry(each, logprob) for each, logprob in likelihood.top]
            entry = self._entry(token_id, likelihood.logprob) | {"top_logprobs": top}
        self._waiting.append((start, entry))

    def take(self, given: Iterable[Words]) -> list[Entry]:
        """The entries of tokens that begin or go on in words which were given just now."""
        return [entry for words in given for entry in self._take(words)]

    def rest(self, stop: tuple[int, Likelihood] | None) -> list[Entry]:
        """The entries of tokens behind the last words of an answer, if they are to be told.

        `stop` is the token that stopped it, if one has; no stop string did.
        """
        if not self._tells_special:
            return []
        if stop is not None:
            self.add(*stop, start=0)
        entries = [entry for _, entry in self._waiting if entry is not None]
        self._waiting.clear()
        return entries

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
            "logprob": bounded(logprob),
            "bytes": None if self._speller.is_special(token_id) else list(spelling),
        }
