"""Token ids of an answer in; words that are safe to send, thoughts and calls of functions out."""

import sys
from collections.abc import Iterable, Iterator, Sequence

from gateway.answers.atoms import AtomStream, find_markers
from gateway.answers.spelling import Speller
from gateway.answers.stops import StopSearch
from workers.families.answers import AnswerForm, AnswerReader, Atom, Event, Functions, Words


class TextStream:
    """Puts an answer's text together; what it has given out is never taken back.

    Without an answer form everything is words: all of them together are the text of all ids,
    without special tokens, up to the first stop string that is complete. With one, thoughts and
    calls are told apart, and stop strings are looked for in words alone: a call interrupts them,
    so that no stop string lies on both of its sides. Owned by the request's task.
    """

    def __init__(self, speller: Speller, stop: Sequence[str], min_tokens: int = 0) -> None:
        """Of the answer's tokens, the first `min_tokens` complete no stop string."""
        self._speller = speller
        self._atoms = AtomStream(speller)
        self._reader: AnswerReader | None = None
        self._stops = StopSearch(stop)
        self._num_tokens = 0
        self._num_spared_tokens = min_tokens
        self._num_spared_characters = 0
        self.num_thought_tokens = 0  # up to the end of the thought, its markers included

    def read_as(self, form: AnswerForm, in_thought: bool, functions: Functions | None) -> None:
        """Tell thoughts apart from words, and calls if there are functions that may be called."""
        markers = form.markers(with_calls=functions is not None)
        if markers:
            self._atoms = AtomStream(self._speller, find_markers(self._speller, markers))
            self._reader = form.reader(in_thought, functions)

    @property
    def stopped(self) -> bool:
        """Whether a stop string is complete; nothing comes after it."""
        return self._stops.stopped

    @property
    def num_characters(self) -> int:
        """Of the tokens taken, characters that are whole."""
        return self._atoms.num_characters

    def push(self, token_ids: Iterable[int]) -> list[Event]:
        """Take the next ids; give what is safe to send."""
        return [event for token_id in token_ids for event in self._push(token_id)]

    def finish(self) -> list[Event]:
        """The answer has ended: give what was still held back."""
        events = list(self._read(self._atoms.finish()))
        if self._reader is not None:
            events += self._search(self._reader.finish())
        if not self.stopped:
            events += _given(self._stops.release())
        return events

    def _push(self, token_id: int) -> Iterator[Event]:
        self._num_tokens += 1
        is_spared = self._num_tokens <= self._num_spared_tokens
        if is_spared:
            self._num_spared_characters = sys.maxsize
        was_thinking = self._is_thinking
        yield from self._read(self._atoms.push(token_id))
        if was_thinking or self._is_thinking:
            self.num_thought_tokens = self._num_tokens
        if is_spared:
            self._num_spared_characters = self._atoms.num_characters

    @property
    def _is_thinking(self) -> bool:
        return self._reader is not None and self._reader.is_thinking

    def _read(self, atoms: Iterable[Atom]) -> Iterator[Event]:
        for atom in atoms:
            if self._reader is None:
                yield from self._search((Words(atom.text, atom.start),))
            else:
                yield from self._search(self._reader.read(atom))

    def _search(self, events: Iterable[Event]) -> Iterator[Event]:
        for event in events:
            if self.stopped:
                return
            if isinstance(event, Words):
                yield from _given(self._stops.push(event, self._num_spared_characters))
            else:
                yield from _given(self._stops.release())
                yield event


def _given(words: Words) -> Iterator[Words]:
    if words.text:
        yield words
