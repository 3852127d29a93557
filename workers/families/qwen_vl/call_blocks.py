"""Blocks of calls between two markers: atoms in, words and calls out, whatever form a call has."""

from collections.abc import Callable, Iterator
from typing import Literal, Protocol

from workers.families.answers import Atom, CallEnded, Event, Speech

CALL_BEGIN = "<tool_call>"
CALL_END = "</tool_call>"
BLANK = " \t\r\n"
_MARKERS = (CALL_BEGIN, CALL_END)


class BlockCall(Protocol):
    """Reads one call from the beginning of a block on."""

    opening: str  # the character that a call begins with

    @property
    def is_told(self) -> bool:
        """Whether it is certain to be a call, and was given out."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it is whole, or no call of this form."""
        ...

    @property
    def is_quoting(self) -> bool:
        """Whether the text is where a marker is only text."""
        ...

    def read(self, text: str) -> tuple[int, list[Event]]:
        """Take the next text; gives how many characters of it are the call's, and events."""
        ...

    def end(self, *, is_cut: bool) -> list[Event]:
        """The block has ended before the call, or the answer has if it `is_cut`."""
        ...


class BlockReader:
    """Reads such blocks; see `workers.families.answers.CallReader`.

    A block that holds no call is words. What stands between a call and the end of its block is
    noise, unless the block has no end or it is a further call.
    """

    def __init__(self, make_call: Callable[[], BlockCall]) -> None:
        self._make_call = make_call
        self._speech = Speech()
        self._state: Literal["outside", "call", "behind"] = "outside"
        self._call = make_call()
        self._held: list[Atom] = []  # words, if there is no call in them or no end of the block

    def read(self, atom: Atom) -> Iterator[Event]:
        """Take the next atom; give what is certain."""
        is_quoted = self._state == "call" and self._call.is_quoting
        if atom.is_marker and atom.text in _MARKERS and not is_quoted:
            yield from self._read_marker(atom)
        elif self._state == "call":
            yield from self._read_call(atom)
        elif self._state == "behind":
            yield from self._read_behind(atom)
        else:
            yield from self._speech.say(atom.text, atom.start)

    def finish(self) -> Iterator[Event]:
        """The answer has ended: give what was held back."""
        if self._has_call and _is_cut_end(self._held):
            self._held = []
        yield from self._leave(is_cut=True)
        yield from self._speech.finish()

    @property
    def _has_call(self) -> bool:
        """Whether the block holds a call; what is held of one without begins with its marker."""
        is_first = bool(self._held) and self._held[0].is_marker
        return self._state != "outside" and not is_first

    def _read_marker(self, atom: Atom) -> Iterator[Event]:
        if atom.text == CALL_END:
            self._held = [] if self._has_call else [*self._held, atom]
        yield from self._leave()
        if atom.text == CALL_BEGIN:
            self._open([atom])

    def _open(self, held: list[Atom]) -> None:
        self._state, self._call, self._held = "call", self._make_call(), held

    def _read_call(self, atom: Atom) -> Iterator[Event]:
        call = self._call
        num_taken, events = call.read(atom.text)
        if events:
            self._speech.call()
            self._held = []
            yield from events
        if not call.is_told:
            self._held.append(atom)
            if call.is_over and self._has_call:
                self._state = "behind"
            elif call.is_over:
                yield from self._leave()
        elif call.is_over:
            yield CallEnded()
            self._state = "behind"
            if num_taken < len(atom.text):
                yield from self.read(Atom(atom.text[num_taken:], atom.start + num_taken))

    def _read_behind(self, atom: Atom) -> Iterator[Event]:
        if self._held:
            self._held.append(atom)
            return
        text = atom.text.lstrip(BLANK)  # white space behind a call is structure
        atom = Atom(text, atom.start + len(atom.text) - len(text))
        if text.startswith(self._call.opening):
            self._open([])
            yield from self._read_call(atom)
        elif text:
            self._held.append(atom)

    def _leave(self, *, is_cut: bool = False) -> Iterator[Event]:
        """End the block; what is held of it is words."""
        if self._state == "call" and self._call.is_told:
            yield from self._call.end(is_cut=is_cut)
            yield CallEnded()
        for atom in self._held:
            yield from self._speech.say(atom.text, atom.start)
        self._state, self._held = "outside", []


def _is_cut_end(held: list[Atom]) -> bool:
    """Whether an answer was cut within an end marker."""
    return CALL_END.startswith("".join(atom.text for atom in held).strip(f"{BLANK}}}"))
