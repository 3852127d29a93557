"""Calls as JSON between two markers, which Hermes taught and Qwen's templates ask for.

<tool_call>
{"name": NAME, "arguments": {...}}
</tool_call>
"""

import json
from collections.abc import Iterator
from typing import Literal

from workers.families.answers import (
    Atom,
    CallArguments,
    CallBegun,
    CallEnded,
    CallSyntax,
    Event,
    Speech,
)

CALL_BEGIN = "<tool_call>"
CALL_END = "</tool_call>"
CALL_SYNTAX = CallSyntax(
    head=(CALL_BEGIN, '\n{"name": "'),
    middle=('", "arguments": ',),
    tail=("}\n", CALL_END),
    between=("\n",),
)
_MARKERS = (CALL_BEGIN, CALL_END)
_BLANK = " \t\r\n"


class JsonCallReader:
    """Reads such calls; see `workers.families.answers.CallReader`.

    A call is told as soon as its name and the beginning of its arguments are there. A block that
    holds no such JSON up to there is words. Arguments are what comes then, right or wrong. Within
    a string of JSON a marker is text, unless a bare line break comes before it, which no such
    string has. What stands between a call and the end of its block is noise, unless the block has
    no end or it is a further call.
    """

    def __init__(self) -> None:
        self._speech = Speech()
        self._state: Literal["outside", "call", "behind"] = "outside"
        self._call = _Call()
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
        if self._state == "behind" and _is_cut_end(self._held):
            self._held = []
        yield from self._leave()
        yield from self._speech.finish()

    def _read_marker(self, atom: Atom) -> Iterator[Event]:
        has_call = self._state == "behind" or (self._state == "call" and self._call.is_told)
        if atom.text == CALL_END:
            self._held = [] if has_call else [*self._held, atom]
        yield from self._leave()
        if atom.text == CALL_BEGIN:
            self._open([atom])

    def _open(self, held: list[Atom]) -> None:
        self._state, self._call, self._held = "call", _Call(), held

    def _read_call(self, atom: Atom) -> Iterator[Event]:
        call = self._call
        num_taken, events = call.read(atom.text)
        if events:
            self._speech.call()
            self._held = []
            yield from events
        if not call.is_told:
            self._held.append(atom)
            if call.is_over:
                yield from self._leave()
        elif call.is_over:
            yield CallEnded()
            self._state = "behind"
            if num_taken < len(atom.text):
                yield from self.read(Atom(atom.text[num_taken:], atom.start + num_taken))

    def _read_behind(self, atom: Atom) -> Iterator[Event]:
        if atom.text.lstrip(_BLANK).startswith("{") and not self._held:
            self._open([])
            yield from self._read_call(atom)
        elif self._held or atom.text.strip(_BLANK):
            self._held.append(atom)

    def _leave(self) -> Iterator[Event]:
        """End the block; what is held of it is words."""
        if self._state == "call" and self._call.is_told:
            yield CallEnded()
        for atom in self._held:
            yield from self._speech.say(atom.text, atom.start)
        self._state, self._held = "outside", []


def _is_cut_end(held: list[Atom]) -> bool:
    """Whether an answer was cut within an end marker."""
    return CALL_END.startswith("".join(atom.text for atom in held).strip(f"{_BLANK}}}"))


class _Call:
    """Reads one object of JSON, a character at a time, and gives its two fields."""

    def __init__(self) -> None:
        self._step = self._open
        self._key = ""
        self._value = _Value()
        self._name = ""
        self._arguments: list[str] = []  # that are not told yet
        self.is_told = False
        self.is_over = False  # whole, or no object of this form

    @property
    def is_quoting(self) -> bool:
        """Whether the text is within a string that may hold anything."""
        return self._value.is_string and not self._value.has_line_break

    def read(self, text: str) -> tuple[int, list[Event]]:
        """Take the next text; gives how many characters of it are the object's, and events."""
        num_taken = 0
        for character in text:
            if self.is_over:
                break
            self._step(character)
            num_taken += 1
        return num_taken, self._tell()

    def _tell(self) -> list[Event]:
        events: list[Event] = []
        if self._name and self._arguments:
            if not self.is_told:
                events.append(CallBegun(self._name, None))
                self.is_told = True
            events.append(CallArguments("".join(self._arguments)))
            self._arguments = []
        return events

    def _open(self, character: str) -> None:
        if character == "{":
            self._step = self._read_field
        elif character not in _BLANK:
            self.is_over = True

    def _read_field(self, character: str) -> None:
        if character == '"':
            self._value = _Value()
            self._value.take(character)
            self._step = self._read_key
        elif character == "}":
            self.is_over = True
            if self._name and not self.is_told and not self._arguments:
                self._arguments = ["{}"]
        elif character not in _BLANK and character != ",":
            self.is_over = True

    def _read_key(self, character: str) -> None:
        if self._value.take(character):
            self._key = self._value.decoded()
            self._value = _Value()
            self._step = self._read_colon

    def _read_colon(self, character: str) -> None:
        if character == ":":
            self._step = self._read_value
        elif character not in _BLANK:
            self.is_over = True

    def _read_value(self, character: str) -> None:
        if self._value.is_empty and character in _BLANK:
            return
        is_scalar_over = self._value.ends_before(character)
        is_over = is_scalar_over or self._value.take(character)
        if self._key == "arguments" and self._value.is_container:
            self._arguments.append(character)
        if is_over:
            self._keep()
            self._step = self._read_field
        if is_scalar_over:
            self._read_field(character)

    def _keep(self) -> None:
        """A value is whole."""
        if self._key == "name":
            self._name = self._value.decoded()
            self.is_over = not self._name
        elif self._key == "arguments" and not self._value.is_container:
            # Some write the object into a string, or leave it out.
            written, decoded = self._value.text, self._value.decoded()
            is_object = decoded.lstrip(_BLANK).startswith("{")
            self._arguments = [decoded if is_object else "{}" if written == "null" else written]
        self._value = _Value()


class _Value:
    """One value of JSON, followed to its end but not checked."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._depth = 0
        self._is_escaped = False
        self.is_string = False  # within one
        self.has_line_break = False  # within this string, bare

    @property
    def is_empty(self) -> bool:
        return not self._text

    @property
    def text(self) -> str:
        """The value as it stands, of a container its beginning."""
        return "".join(self._text)

    @property
    def is_container(self) -> bool:
        """Whether it is an object or a list."""
        return self._text[:1] in (["{"], ["["])

    def ends_before(self, character: str) -> bool:
        """Whether it is a number or a word that goes no further."""
        is_scalar = bool(self._text) and self._text[0] not in '{["'
        return is_scalar and (character in _BLANK or character in ",}")

    def take(self, character: str) -> bool:
        """Take the next character; tells whether the value ends with it."""
        if not self.is_container or not self._text:
            self._text.append(character)
        if self.is_string:
            return self._take_quoted(character)
        if character == '"':
            self.is_string, self.has_line_break = True, False
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
            return self._depth <= 0
        return False

    def _take_quoted(self, character: str) -> bool:
        self.has_line_break |= character == "\n"
        if self._is_escaped:
            self._is_escaped = False
        elif character == "\\":
            self._is_escaped = True
        elif character == '"':
            self.is_string = False
            return self._depth == 0
        return False

    def decoded(self) -> str:
        """What a string holds, "" for other values and for a broken one."""
        try:
            value = json.loads(self.text, strict=False)
        except ValueError:
            return ""
        return value if isinstance(value, str) else ""
