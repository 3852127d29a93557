"""The text that a model wrote for one parameter in, JSON of the type that its schema names out."""

import ast
import json
from collections.abc import Sequence
from typing import Any, NoReturn

from workers.families.schemas import type_of

_NULLS = ("null", "none")
_MAX_LITERAL_CHARACTERS = 64 * 1024  # more of Python's notation is not looked at


class Value:
    """Turns one value into JSON, a string as it comes, any other at its end."""

    def __init__(self, types: Sequence[str]) -> None:
        """`types` are those that the schema allows; none are a string."""
        self._types = types
        first = next((each for each in types if each != "null"), "null" if types else "string")
        self._is_text = first == "string"
        self._held: list[str] = []
        self._is_quoted = False
        self.is_empty = True

    def take(self, text: str) -> str:
        """Take the next text; gives the JSON that is certain."""
        self.is_empty = self.is_empty and not text
        self._held.append(text)
        if not self._is_text or not text or self._may_be_null():
            return ""
        return self._quote()

    def finish(self) -> str:
        """The value is whole: give the rest of its JSON."""
        if self._is_quoted:
            return self._quote() + '"'
        return to_json("".join(self._held), self._types)

    def cut(self) -> str:
        """The answer has ended within the value: give the rest as it stands."""
        if self._is_text:
            return self._quote() if any(self._held) else ""
        return "".join(self._held).strip()

    def _may_be_null(self) -> bool:
        if self._is_quoted or "null" not in self._types:
            return False
        text = "".join(self._held).strip().lower()
        return any(word.startswith(text) for word in _NULLS)

    def _quote(self) -> str:
        text, self._held = "".join(self._held), []
        opening, self._is_quoted = "" if self._is_quoted else '"', True
        return opening + json.dumps(text, ensure_ascii=False)[1:-1]


def to_json(text: str, types: Sequence[str]) -> str:
    """A value as JSON of the first of these types that it has; as a string if it has none.

    JSON stays as it is written. Python's names and literals are taken as well, because templates
    show earlier calls so.
    """
    word = text.strip()
    is_nullable = "null" in types or (types and "string" not in types)
    if is_nullable and word.lower() in _NULLS:
        return "null"
    for name in types:
        if name == "string":
            break
        found = _read(word, name)
        if found is not None:
            return found
    return json.dumps(text, ensure_ascii=False)


def _read(word: str, name: str) -> str | None:
    if name == "boolean":
        return word.lower() if word.lower() in ("true", "false") else None
    try:
        value = json.loads(word, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return _read_literal(word) if name in ("object", "array") else None
    is_whole = name == "integer" and isinstance(value, float) and value.is_integer()
    is_number = name == "number" and type_of(value) == "integer"
    return word if type_of(value) == name or is_whole or is_number else None


def _read_literal(word: str) -> str | None:
    """An object or a list in Python's notation as JSON."""
    if len(word) > _MAX_LITERAL_CHARACTERS or not word.startswith(("{", "[", "(")):
        return None
    try:
        value: Any = ast.literal_eval(word)
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
