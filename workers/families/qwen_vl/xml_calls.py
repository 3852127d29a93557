"""Calls as tags between two markers, one parameter after another, as Qwen3-Coder was taught.

<tool_call>
<function=NAME>
<parameter=KEY>
value
</parameter>
</function>
</tool_call>
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from workers.families.answers import (
    CallArguments,
    CallBegun,
    CallReader,
    CallSyntax,
    Event,
    Functions,
    ParameterSyntax,
)
from workers.families.qwen_vl.call_blocks import CALL_BEGIN, CALL_END, BlockReader
from workers.families.qwen_vl.xml_values import Value
from workers.families.schemas import follow, types_of

_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
CALL_SYNTAX = CallSyntax(
    head=(CALL_BEGIN, f"\n{_FUNCTION}"),
    middle=(">\n",),
    tail=(f"{_FUNCTION_END}\n", CALL_END),
    between=("\n",),
    parameter=ParameterSyntax(
        head=_PARAMETER,
        middle=">\n",
        end=f"\n{_PARAMETER_END}",
        tail="\n",
        never=(_PARAMETER_END, f"\n{_PARAMETER}", CALL_BEGIN, CALL_END),
    ),
)


def _beginnings(*words: str) -> str:
    """A pattern of every text that one of these words may go on from."""
    parts = (word[:length] for word in words for length in range(len(word) - 1, 0, -1))
    return "|".join(map(re.escape, parts))


_BLANK = r"\s{0,64}"
_NAME = r"[^<>\n]{1,256}"
_HEAD = re.compile(rf"{_BLANK}{_FUNCTION}({_NAME})>")
_OPEN_HEAD = re.compile(rf"{_BLANK}(?:{_FUNCTION}[^<>\n]{{0,256}}|{_beginnings(_FUNCTION)})?")
_TAG = re.compile(rf"{_PARAMETER}(?P<name>{_NAME})>|{_FUNCTION_END}")
_OPEN_TAG = re.compile(
    rf"(?:{_PARAMETER}[^<>\n]{{0,256}}|{_beginnings(_PARAMETER, _FUNCTION_END)})?\Z"
)
_NEXT = rf"{_PARAMETER}|{_FUNCTION_END}"
# A value's own tag counts where structure follows it; one that has none ends before the next.
_VALUE_END = re.compile(
    rf"\n?{_PARAMETER_END}{_BLANK}(?={_NEXT})|\n(?={_PARAMETER}(?P<next>{_NAME})>)"
)
_OPEN_VALUE_END = re.compile(
    rf"\n?(?:{_PARAMETER_END}{_BLANK}(?:{_beginnings(_PARAMETER, _FUNCTION_END)})?"
    rf"|{_FUNCTION_END}{_BLANK}|{_PARAMETER}[^<>\n]{{0,256}}"
    rf"|{_beginnings(_PARAMETER, _FUNCTION_END, _PARAMETER_END)})?\Z"
)
# What may stand between a value and the end of its block.
_LAST = re.compile(rf"\n?(?:{_PARAMETER_END}{_BLANK})?(?:{_FUNCTION_END}{_BLANK})?")
_LAST_OF_CUT = re.compile(rf"\n?(?:{_PARAMETER_END}|{_FUNCTION_END}){_BLANK}")


def xml_call_reader(functions: Functions) -> CallReader:
    """A reader of answers with such calls."""
    return BlockReader(partial(_Call, functions))


class _Call:
    """Reads one function, from before its tag to its end.

    A call is told as soon as its name is there. Within a value everything is text but what ends
    it: its tag with more structure behind it, a line with the tag of a parameter that is still to
    come, or a marker at the beginning of a line. Where no parameter comes, the text in their place
    is the arguments.
    """

    opening = "<"

    def __init__(self, functions: Functions) -> None:
        self._functions = functions
        self._root: Mapping[str, Any] = {}  # the schema of the function's parameters
        self._schema: Mapping[str, Any] = {}  # the same, or what it refers to
        self._step: Callable[[], list[Event] | None] = self._read_head
        self._text = ""  # that is not read yet
        self._noise = ""
        self._value: Value | None = None
        self._names: set[str] = set()  # of parameters that came
        self.is_told = False
        self.is_over = False

    @property
    def is_quoting(self) -> bool:
        """Whether the text is within the line of a value."""
        value = self._value
        if value is None or (value.is_empty and not self._text):
            return False
        return not self._text or _LAST.fullmatch(self._text) is None

    def read(self, text: str) -> tuple[int, list[Event]]:
        """Take the next text; gives how many characters of it are the call's, and events."""
        self._text += text
        events: list[Event] = []
        while not self.is_over and (news := self._step()) is not None:
            events += news
        num_left = len(self._text) if self.is_over else 0
        return len(text) - num_left, events

    def end(self, *, is_cut: bool) -> list[Event]:
        """Close what is open, unless the answer was cut within it."""
        if self._value is None:
            return [] if is_cut else self._close()
        if not is_cut:
            return [*self._end_value(), *self._close()]
        if _LAST_OF_CUT.match(self._text):
            return self._end_value()
        return _told(self._value.cut())

    def _read_head(self) -> list[Event] | None:
        found = _HEAD.match(self._text)
        if found is None:
            self.is_over = _OPEN_HEAD.fullmatch(self._text) is None
            return None
        name = found[1].strip()
        self._root = self._functions.get(name, {})
        self._schema = follow(self._root, self._root)
        self._text = self._text[found.end() :]
        self._step, self.is_told = self._read_body, True
        return [CallBegun(name, None)]

    def _read_body(self) -> list[Event] | None:
        """Find the next parameter, or the end of the function."""
        found = _TAG.search(self._text)
        if found is None:
            self._noise += self._take_safe(_OPEN_TAG)
            return None
        self._noise += self._text[: found.start()]
        self._text = self._text[found.end() :]
        if found["name"] is None:
            self.is_over = True
            return self._close()
        self._step = self._read_beginning
        return self._begin_value(found["name"].strip())

    def _read_beginning(self) -> list[Event] | None:
        """A value begins behind the line of its tag."""
        if not self._text:
            return None
        self._text = self._text.removeprefix("\n")
        self._step = self._read_value
        return []

    def _read_value(self) -> list[Event] | None:
        assert self._value is not None
        for found in _VALUE_END.finditer(self._text):
            if found["next"] is None or self._is_awaited(found["next"].strip()):
                events = _told(self._value.take(self._text[: found.start()]))
                self._text = self._text[found.end() :]
                self._step = self._read_body
                return events + self._end_value()
        events = _told(self._value.take(self._take_safe(_OPEN_VALUE_END)))
        return events or None

    def _take_safe(self, open_end: re.Pattern[str]) -> str:
        """Text up to where structure may begin, which waits for more."""
        found = open_end.search(self._text)
        assert found is not None, "the pattern matches nothing at the end"
        safe, self._text = self._text[: found.start()], self._text[found.start() :]
        return safe

    def _begin_value(self, name: str) -> list[Event]:
        self._value = Value(self._types(name))
        opening = ", " if self._names else "{"
        self._names.add(name)
        return _told(f"{opening}{json.dumps(name, ensure_ascii=False)}: ")

    def _end_value(self) -> list[Event]:
        value, self._value = self._value, None
        assert value is not None
        return _told(value.finish())

    def _close(self) -> list[Event]:
        return _told("}" if self._names else self._noise.strip() or "{}")

    def _types(self, name: str) -> Sequence[str]:
        """The types of a parameter; nothing is known of one that the function does not have."""
        known = self._schema.get("properties")
        if isinstance(known, Mapping) and name in known:
            return types_of(known[name], self._root)
        return types_of(self._schema.get("additionalProperties"), self._root)

    def _is_awaited(self, name: str) -> bool:
        known = self._schema.get("properties")
        return isinstance(known, Mapping) and name in known and name not in self._names


def _told(arguments: str) -> list[Event]:
    return [CallArguments(arguments)] if arguments else []
