"""Calls as JSON between two markers, which Hermes taught and Qwen's templates ask for.

<tool_call>
{"name": NAME, "arguments": {...}}
</tool_call>
"""

import json

from workers.families.answers import (
    CallArguments,
    CallBegun,
    CallReader,
    CallSyntax,
    Event,
    Functions,
)
from workers.families.qwen_vl.call_blocks import BLANK, CALL_BEGIN, CALL_END, BlockReader

CALL_SYNTAX = CallSyntax(
    head=(CALL_BEGIN, '\n{"name": "'),
    middle=('", "arguments": ',),
    tail=("}\n", CALL_END),
    between=("\n",),
)


def json_call_reader(_: Functions) -> CallReader:
    """A reader of answers with such calls."""
    return BlockReader(_Call)


class _Call:
    """Reads one object of JSON, a character at a time, and gives its two fields.

    A call is told as soon as its name and the beginning of its arguments are there. Arguments are
    what comes then, right or wrong. Within a string of JSON a marker is text, unless a bare line
    break comes before it, which no such string has.
    """

    opening = "{"

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

    def end(self, *, is_cut: bool) -> list[Event]:
        """Arguments are what was told of them."""
        return []

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
        elif character not in BLANK:
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
        elif character not in BLANK and character != ",":
            self.is_over = True

    def _read_key(self, character: str) -> None:
        if self._value.take(character):
            self._key = self._value.decoded()
            self._value = _Value()
            self._step = self._read_colon

    def _read_colon(self, character: str) -> None:
        if character == ":":
            self._step = self._read_value
        elif character not in BLANK:
            self.is_over = True

    def _read_value(self, character: str) -> None:
        if self._value.is_empty and character in BLANK:
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
            is_object = decoded.lstrip(BLANK).startswith("{")
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
        return is_scalar and (character in BLANK or character in ",}")

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
