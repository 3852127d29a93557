"""What families share to read an answer: its text in, words, thoughts and calls of functions out.

An answer arrives as atoms: text, and markers, which give it its structure. A family says by an
`AnswerForm` which markers it has, and reads its calls with a `CallReader`. No torch.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol


@dataclass(frozen=True, slots=True)
class Atom:
    """The next text of an answer, or one marker; `start` counts the characters before it."""

    text: str
    start: int
    is_marker: bool = False


@dataclass(frozen=True, slots=True)
class Words:
    """Text for the caller, as it stands in the answer; `start` counts the characters before it."""

    text: str
    start: int


@dataclass(frozen=True, slots=True)
class Thoughts:
    """Text that the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of a function; its arguments come next."""

    name: str
    id: str | None  # the model's own, where its form has one


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of the arguments of the call that began last: JSON, if the model is right."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The call that began last is whole, or the answer ended within it."""


Event = Words | Thoughts | CallBegun | CallArguments | CallEnded

# What may be called: a function's name -> the JSON schema of its parameters, as the caller sent it.
Functions = Mapping[str, Mapping[str, Any]]


class CallReader(Protocol):
    """Reads the part of an answer that is said to the caller. Owned by the request's task.

    What it takes for a call and then finds to be none comes out as words, letter for letter.
    """

    def read(self, atom: Atom) -> Iterator[Event]:
        """Take the next atom; give what is certain."""
        ...

    def finish(self) -> Iterator[Event]:
        """The answer has ended: give what was held back."""
        ...


class PlainReader:
    """Reads an answer without calls: all of it is words."""

    def read(self, atom: Atom) -> Iterator[Event]:
        """Give the atom as it is."""
        yield Words(atom.text, atom.start)

    def finish(self) -> Iterator[Event]:
        """Nothing is ever held back."""
        return iter(())


Piece = str | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class ParameterSyntax:
    """How arguments are written one by one: `head`, the name, `middle`, the value, `end`, `tail`.

    A value that may be a string is that text as it is, any other is JSON.
    """

    head: str
    middle: str
    end: str
    tail: str
    never: tuple[str, ...]  # what no text of a value holds, because it would be read as structure


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How calls are written: markers, text and patterns of text, in order.

    All calls are `opening`, one call or several with `between` them, `closing`. A call is `head`,
    the function's name, `middle`, its arguments, `tail`; these are JSON unless `parameter` is set.
    """

    head: tuple[Piece, ...]
    middle: tuple[Piece, ...]
    tail: tuple[Piece, ...]
    opening: tuple[Piece, ...] = ()
    between: tuple[Piece, ...] = ()
    closing: tuple[Piece, ...] = ()
    parameter: ParameterSyntax | None = None


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """How the answers of one checkpoint are built, as its chat template teaches them.

    A thought stands at an answer's beginning, between its two markers; the prompt itself may open
    it. Newlines beside it may be structure, too.
    """

    thinks: bool
    thought_begin: str
    thought_end: str
    thought_in_lines: bool  # its markers stand on lines of their own
    thought_enders: frozenset[str]  # markers of calls that end a thought without its own marker
    call_markers: frozenset[str]  # none: no form of calls is known
    call_syntax: CallSyntax | None  # how the model is kept to calls, where it may not choose
    make_call_reader: Callable[[Functions], CallReader]

    def markers(self, with_calls: bool) -> frozenset[str]:
        """What is to be told as a marker in an answer that may have calls, or may not."""
        thought = frozenset({self.thought_begin, self.thought_end} if self.thinks else ())
        return thought | self.call_markers if with_calls else thought

    def opens_thought(self, prompt: str) -> bool:
        """Whether an answer to this rendered prompt begins within a thought."""
        return self.thinks and prompt.rstrip().endswith(self.thought_begin)

    def reader(self, in_thought: bool, functions: Functions | None) -> "AnswerReader":
        """A reader of one answer; without functions it looks for no calls."""
        calls = PlainReader() if functions is None else self.make_call_reader(functions)
        return AnswerReader(self, in_thought, calls)


class AnswerReader:
    """Tells thoughts from the rest, which a `CallReader` reads. Owned by the request's task."""

    def __init__(self, form: AnswerForm, in_thought: bool, calls: CallReader) -> None:
        self._form = form
        self._calls = calls
        self._state: Literal["before", "within", "behind", "past"] = "past"
        if form.thinks:
            self._state = "within" if in_thought else "before"
        self._blank: list[Atom] = []  # white space that may be structure
        self._has_thought = False

    @property
    def is_thinking(self) -> bool:
        """Whether the answer is within a thought."""
        return self._state == "within"

    def read(self, atom: Atom) -> Iterator[Event]:
        """Take the next atom; give what is certain."""
        match self._state:
            case "before":
                yield from self._read_before(atom)
            case "within":
                yield from self._read_thought(atom)
            case "behind":
                yield from self._read_behind(atom)
            case "past":
                yield from self._calls.read(atom)

    def finish(self) -> Iterator[Event]:
        """The answer has ended: give what was held back."""
        if self._state == "before":
            yield from self._pass_on()
        yield from self._calls.finish()

    def _read_before(self, atom: Atom) -> Iterator[Event]:
        """A thought begins the answer or there is none."""
        if atom.is_marker and atom.text == self._form.thought_begin:
            self._state = "within"
            self._blank = []
            return
        self._blank.append(atom)
        if atom.is_marker or not atom.text.isspace():
            self._state = "past"
            yield from self._pass_on()

    def _read_thought(self, atom: Atom) -> Iterator[Event]:
        if atom.is_marker and atom.text == self._form.thought_end:
            self._end_thought()
        elif atom.is_marker and atom.text in self._form.thought_enders:
            self._end_thought()
            yield from self.read(atom)
        elif atom.is_marker and atom.text == self._form.thought_begin and not self._has_thought:
            pass  # the prompt has opened it already
        else:
            yield from self._think(atom)

    def _think(self, atom: Atom) -> Iterator[Event]:
        """Give a thought's text, less the newlines at its edges where they are structure."""
        self._blank.append(atom)
        if not self._form.thought_in_lines:
            text = self._take_blank()
        elif not atom.text.strip("\n"):
            return
        else:
            text = self._take_blank()
            kept = text.rstrip("\n")
            self._blank = [Atom(text[len(kept) :], 0)] if len(kept) < len(text) else []
            text = kept if self._has_thought else kept.lstrip("\n")
        self._has_thought = True
        yield Thoughts(text)

    def _end_thought(self) -> None:
        self._blank = []
        self._state = "behind" if self._form.thought_in_lines else "past"

    def _read_behind(self, atom: Atom) -> Iterator[Event]:
        """Leave out the newlines between a thought and what is said."""
        text = atom.text if atom.is_marker else atom.text.lstrip("\n")
        if text:
            self._state = "past"
            start = atom.start + len(atom.text) - len(text)
            yield from self._calls.read(Atom(text, start, atom.is_marker))

    def _take_blank(self) -> str:
        taken, self._blank = self._blank, []
        return "".join(atom.text for atom in taken)

    def _pass_on(self) -> Iterator[Event]:
        held, self._blank = self._blank, []
        for atom in held:
            yield from self._calls.read(atom)


class Speech:
    """Words around calls: white space beside a call is structure, unless it parts two texts.

    Owned by a `CallReader`.
    """

    def __init__(self) -> None:
        self._blank: list[Words] = []
        self._has_spoken = False
        self._has_called = False  # since the last word

    def say(self, text: str, start: int) -> Iterator[Words]:
        """Take the next text; give what cannot stand beside a call any more."""
        kept = text.rstrip()
        if kept:
            yield from self._say(kept, start)
        if len(kept) < len(text):
            self._blank.append(Words(text[len(kept) :], start + len(kept)))

    def call(self) -> None:
        """A call stands here."""
        self._has_called = True

    def finish(self) -> Iterator[Words]:
        """The answer has ended."""
        if not self._has_called:
            yield from self._blank
        self._blank = []

    def _say(self, text: str, start: int) -> Iterator[Words]:
        if self._has_spoken or not self._has_called:
            yield from self._blank
        else:
            start += len(text) - len(text.lstrip())
            text = text.lstrip()
        self._blank = []
        self._has_spoken, self._has_called = True, False
        yield Words(text, start)
