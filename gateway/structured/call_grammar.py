"""Functions and a family's way to call them in, the rules that such calls follow out."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway.answers.spelling import Speller
from gateway.errors import BadRequest
from gateway.schemas.tools_schema import Function, Tool
from gateway.structured.json_grammar import SchemaRule, schema_rule
from gateway.structured.parameter_grammar import ParameterRules
from workers.families.answers import AnswerForm, CallSyntax, Piece

MAX_CALLS_CHARACTERS = 512 * 1024  # of all schemas together

# What OpenAI means by a function without parameters.
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True)
class CallRules:
    """Rules, of which `calls` is one call or more, and the schemas in them."""

    text: str
    schemas: tuple[SchemaRule, ...]


@dataclass(slots=True)
class JsonArguments:
    """Writes arguments that are one object of JSON. Owned by whoever makes a grammar."""

    schemas: list[SchemaRule] = field(default_factory=list)

    def arguments(self, schema: dict[str, Any], param: str, *, is_strict: bool) -> str:
        """What the arguments of one function follow; see `schema_rule` for what it raises."""
        self.schemas.append(schema_rule(schema, param, is_strict=is_strict))
        return self.schemas[-1].text

    def rules(self) -> str:
        """No rule stands behind these."""
        return ""


def call_rules(
    tools: Sequence[Tool], named: str | None, parallel: bool, form: AnswerForm, speller: Speller
) -> CallRules:
    """Rules for calls of any of the tools, or of the one that is named; one call or more.

    The arguments of functions that are not strict follow their schema as far as the library can.

    Raises:
        BadRequest: a schema is too large, or too deep, or all together are too large.
    """
    syntax = form.call_syntax
    assert syntax is not None, "the checkpoint has no form of calls"
    write = _Writer(form.call_markers, speller)
    writer = JsonArguments() if syntax.parameter is None else ParameterRules(syntax.parameter)
    calls = [
        _one_call(syntax, tool.function.name, _arguments(writer, index, tool.function), write)
        for index, tool in enumerate(tools)
        if named in (None, tool.function.name)
    ]
    _refuse_large(sum(map(len, calls)))
    more = f"({write(syntax.between)} call)*" if parallel else ""
    all_calls = f"{write(syntax.opening)} call {more} {write(syntax.closing)}"
    rules = f"calls: {all_calls}\ncall: {' | '.join(calls)}\n{writer.rules()}"
    return CallRules(rules, tuple(writer.schemas))


def _arguments(writer: JsonArguments | ParameterRules, index: int, function: Function) -> str:
    schema = _NO_PARAMETERS if function.parameters is None else function.parameters
    param = f"tools[{index}].function.parameters"
    return writer.arguments({"type": "object"} | schema, param, is_strict=function.strict is True)


def _refuse_large(num_characters: int) -> None:
    if num_characters > MAX_CALLS_CHARACTERS:
        raise BadRequest(
            f"tools: the parameters come to {num_characters} characters of rules; where calls "
            f"follow them, the limit is {MAX_CALLS_CHARACTERS}",
            param="tools",
        )


def marker_token(syntax: CallSyntax, speller: Speller) -> int | None:
    """The token that begins calls, if they begin with one."""
    first = (*syntax.opening, *syntax.head)[0]
    return speller.find(first) if isinstance(first, str) else None


def _one_call(syntax: CallSyntax, name: str, arguments: str, write: "_Writer") -> str:
    parts = (write((*syntax.head, name)), write(syntax.middle), arguments, write(syntax.tail))
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes what calls consist of; a marker is its token where the vocabulary has one."""

    markers: frozenset[str]
    speller: Speller

    def __call__(self, pieces: Sequence[Piece]) -> str:
        return " ".join(map(self._write, pieces))

    def _write(self, piece: Piece) -> str:
        if isinstance(piece, re.Pattern):
            return f"/{piece.pattern}/"
        token_id = self.speller.find(piece) if piece in self.markers else None
        return json.dumps(piece) if token_id is None else f"<[{token_id}]>"
