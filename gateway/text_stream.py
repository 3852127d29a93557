"""Token ids of an answer in, text that is safe to send out."""

import codecs
from collections.abc import Iterable, Sequence

from gateway.spelling import Speller


class TextStream:
    """Puts an answer's text together; what it has given out is never taken back.

    Bytes wait until their character is whole, and text waits while it may become a stop string.
    All pieces together are the text of all ids, without special tokens, up to the first stop
    string that is complete. The cost is linear. Owned by the request's task.
    """

    def __init__(self, speller: Speller, stop: Sequence[str], min_tokens: int = 0) -> None:
        """Of the answer's tokens, the first `min_tokens` complete no stop string."""
        self._speller = speller
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._searches = [_Search(text) for text in stop if text]
        self._num_spared = min_tokens
        self._held = ""  # the beginning of a stop string, perhaps
        self.num_characters = 0  # of the tokens taken, characters that are whole
        self.num_given = 0  # characters that were given out
        self.stopped = False

    def push(self, token_ids: Iterable[int]) -> str:
        """Take the next ids; give the text that is safe to send, which may be empty."""
        return "".join(map(self._push, token_ids))

    def finish(self) -> str:
        """What was still held back; bytes that never became a character turn into U+FFFD."""
        text = self._give(self._decoder.decode(b"", final=True)) + self._held
        self.num_given += len(self._held)
        self._held = ""
        return text

    def _push(self, token_id: int) -> str:
        self._num_spared -= 1
        if self._speller.is_special(token_id):
            return ""
        return self._give(self._decoder.decode(self._speller.spell(token_id)))

    def _give(self, text: str) -> str:
        if self.stopped:
            return ""
        self.num_characters += len(text)
        held, self._held = self._held, ""
        given = self._until_stop(held, text)
        self.num_given += len(given)
        return given

    def _until_stop(self, held: str, text: str) -> str:
        for index, character in enumerate(text, start=len(held) + 1):
            found = [search.text for search in self._searches if search.step(character)]
            if found and self._num_spared < 0:
                self.stopped = True
                return (held + text)[: index - max(map(len, found))]
        text = held + text
        safe = len(text) - max((search.matched for search in self._searches), default=0)
        self._held = text[safe:]
        return text[:safe]


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
