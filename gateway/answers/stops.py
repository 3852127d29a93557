"""Words of an answer in, words without what a stop string ends out."""

from collections.abc import Sequence

from workers.families.answers import Words


class StopSearch:
    """Ends the words at the first stop string that is complete; holds back what may become one.

    The cost is linear. Owned by a `TextStream`.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._searches = [_Search(text) for text in stops if text]
        self._held = Words("", 0)  # the beginning of a stop string, perhaps
        self.stopped = False

    def push(self, words: Words, spared: int) -> Words:
        """Take the next words, which follow those before; give what is safe to send.

        A stop string that ends within the answer's first `spared` characters counts for nothing.
        """
        if self.stopped or not self._searches:
            return Words("" if self.stopped else words.text, words.start)
        held = self._held
        text, start = held.text + words.text, held.start if held.text else words.start
        for index, character in enumerate(words.text, start=len(held.text) + 1):
            found = [search.text for search in self._searches if search.step(character)]
            if found and start + index > spared:
                self.stopped, self._held = True, Words("", 0)
                return Words(text[: index - max(map(len, found))], start)
        safe = len(text) - max(search.matched for search in self._searches)
        self._held = Words(text[safe:], start + safe)
        return Words(text[:safe], start)

    def release(self) -> Words:
        """The words end here or are interrupted: give what was held back, and begin anew."""
        held, self._held = self._held, Words("", 0)
        for search in self._searches:
            search.matched = 0
        return held


class _Search:
    """Looks for one stop string, a character at a time (Knuth, Morris and Pratt)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.matched = 0  # characters of `text` that the stream ends with
        self._borders = [0] * len(text)  # longest proper border of each beginning of `text`
        length = 0
        for index in range(1, len(text)):
            while length and text[index] != text[length]:
                length = self._borders[length - 1]
            length += text[index] == text[length]
            self._borders[index] = length

    def step(self, character: str) -> bool:
        """Take the next character; tells whether the stop string is complete."""
        # A complete one that did not count goes on like one that failed.
        while self.matched and self.text[self.matched : self.matched + 1] != character:
            self.matched = self._borders[self.matched - 1]
        self.matched += self.text[self.matched] == character
        return self.matched == len(self.text)
