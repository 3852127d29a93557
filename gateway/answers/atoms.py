"""Token ids of an answer in, atoms out: text of whole characters, and markers apart from it."""

import codecs
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gateway.answers.spelling import Speller
from workers.families.answers import Atom


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Which tokens are markers, and which markers are no tokens of the vocabulary."""

    tokens: Mapping[int, str]
    spelt: tuple[str, ...]


NO_MARKERS = Lexicon({}, ())


def find_markers(speller: Speller, markers: frozenset[str]) -> Lexicon:
    """Look markers up in a vocabulary.

    Where it has a token for one, the same letters are text: nobody's words become a marker by
    being repeated.
    """
    ids = {marker: speller.find(marker) for marker in markers}
    return Lexicon(
        tokens={token_id: marker for marker, token_id in ids.items() if token_id is not None},
        spelt=tuple(sorted(marker for marker, token_id in ids.items() if token_id is None)),
    )


class AtomStream:
    """Puts characters together from bytes, and finds markers. Owned by a `TextStream`.

    Bytes wait until their character is whole, and text waits while it may become a marker that
    has to be spelt. Other special tokens are left out.
    """

    def __init__(self, speller: Speller, lexicon: Lexicon = NO_MARKERS) -> None:
        self._speller = speller
        self._lexicon = lexicon
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._spelt = re.compile("|".join(map(re.escape, lexicon.spelt))) if lexicon.spelt else None
        self._beginnings = tuple(
            {marker[:length] for marker in lexicon.spelt for length in range(1, len(marker))}
        )
        self._held = ""  # the beginning of a marker, perhaps; its characters are counted
        self.num_characters = 0  # of the tokens taken, characters that are whole

    def push(self, token_id: int) -> Iterator[Atom]:
        """Take the next id; give what is certain."""
        marker = self._lexicon.tokens.get(token_id)
        if marker is not None:
            # A character that this leaves broken comes before it.
            yield from self._give(self._decoder.decode(b"", final=True))
            self._decoder.reset()
            yield from self._let_go()
            yield self._atom(marker, is_marker=True)
        elif not self._speller.is_special(token_id):
            yield from self._give(self._decoder.decode(self._speller.spell(token_id)))

    def finish(self) -> Iterator[Atom]:
        """What was still held back; bytes that never became a character turn into U+FFFD."""
        yield from self._give(self._decoder.decode(b"", final=True))
        yield from self._let_go()

    def _give(self, text: str) -> Iterator[Atom]:
        if self._spelt is None:
            if text:
                yield self._atom(text)
            return
        self.num_characters += len(text)
        start = self.num_characters - len(text) - len(self._held)
        text, self._held = self._held + text, ""
        place = 0
        for match in self._spelt.finditer(text):
            if match.start() > place:
                yield Atom(text[place : match.start()], start + place)
            yield Atom(match.group(), start + match.start(), is_marker=True)
            place = match.end()
        safe = self._safe_end(text, place)
        if safe > place:
            yield Atom(text[place:safe], start + place)
        self._held = text[safe:]

    def _safe_end(self, text: str, place: int) -> int:
        """Where the longest end of `text[place:]` begins that a marker begins with."""
        most = max(map(len, self._beginnings))
        for safe in range(max(place, len(text) - most), len(text)):
            if text[safe:] in self._beginnings:
                return safe
        return len(text)

    def _let_go(self) -> Iterator[Atom]:
        held, self._held = self._held, ""
        if held:
            yield Atom(held, self.num_characters - len(held))

    def _atom(self, text: str, is_marker: bool = False) -> Atom:
        start = self.num_characters
        self.num_characters += len(text)
        return Atom(text, start, is_marker)
