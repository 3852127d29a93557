"""The form that an answer should have in, a grammar for the engine out."""

import re
from dataclasses import dataclass
from typing import Any

import orjson
from llguidance import LLMatcher, LLParserLimits

from gateway.errors import BadRequest
from gateway.format_schema import ResponseFormat

MAX_GRAMMAR_BYTES = 64 * 1024
_MAX_REASON_CHARACTERS = 300
# One space, or a new line with an indent: a model that only ever sends spaces gets on.
_SPACE = r"[ ]|\n[ \t]{0,40}"
# Else the library forces one way to cut what must come into tokens, and asks a tokenizer for it.
_OPTIONS = '%llguidance {"no_forcing": true}\n'
_POSITION = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?|\s*\n +\d+ \| .*", re.S)


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer follows, and the field of the request to blame if that is impossible."""

    text: str
    param: str


def make_grammar(form: ResponseFormat) -> Grammar | None:
    """The grammar of a form; none for text, which may be anything.

    Raises:
        BadRequest: the schema is too large, or cannot be written as JSON.
    """
    if form.type == "text":
        return None
    if form.json_schema is None or form.json_schema.body is None:
        return Grammar(f"{_OPTIONS}start: {_json({'type': 'object'})}\n", "response_format")
    param = "response_format.json_schema.schema"
    return Grammar(f"{_OPTIONS}start: {schema_rule(form.json_schema.body, param)}\n", param)


def schema_rule(schema: dict[str, Any], param: str) -> str:
    """A JSON schema as a part of a grammar's rule; spaces between its tokens are bounded.

    Raises:
        BadRequest: see `make_grammar`.
    """
    try:
        rule = _json(schema)
    except TypeError as error:
        raise BadRequest(f"{param}: it is nested too deep", param=param) from error
    if len(rule) > MAX_GRAMMAR_BYTES:
        raise BadRequest(
            f"{param}: it has {len(rule)} bytes as JSON; the limit is {MAX_GRAMMAR_BYTES}",
            param=param,
        )
    return rule


def check_grammar(grammar: Grammar) -> None:
    """Have the library read a grammar. Takes CPU time, without the lock: run it in a thread.

    Raises:
        BadRequest: the library cannot take it; the message says why.
    """
    limits = LLParserLimits(verbose_errors=False)
    is_refused, reasons = LLMatcher.validate_grammar_with_warnings(grammar.text, limits=limits)
    if is_refused:
        reason = " ".join(_POSITION.sub("", reasons[0]).split())[:_MAX_REASON_CHARACTERS]
        raise BadRequest(
            f"{grammar.param}: this schema cannot be kept to: {reason}",
            param=grammar.param,
            code="invalid_schema",
        )


def _json(schema: dict[str, Any]) -> str:
    options = {"x-guidance": {"whitespace_pattern": _SPACE}}  # the library's own; never a caller's
    return "%json " + orjson.dumps(schema | options).decode()
