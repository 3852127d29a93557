"""A JSON schema in, a part of a grammar out that only JSON of this schema follows."""

import re
from dataclasses import dataclass
from typing import Any

import orjson
from llguidance import LLMatcher, LLParserLimits

from gateway.errors import BadRequest
from gateway.panic import LibraryPanic, name_panics
from gateway.structured.schema_numbers import reason_against

# Else the library forces one way to cut what must come into tokens, and asks a tokenizer for it.
OPTIONS = '%llguidance {"no_forcing": true}\n'
MAX_SCHEMA_BYTES = 256 * 1024
_MAX_REASON_CHARACTERS = 100  # it may repeat what the caller wrote
# One space, or a new line with an indent: a model that only ever sends spaces gets on.
_SPACE = r"[ ]|\n[ \t]{0,40}"
_POSITION = re.compile(r"^at \d+\(\d+\): (failed to compile JSON schema: )?|\s*\n +\d+ \| .*", re.S)


@dataclass(frozen=True, slots=True)
class SchemaRule:
    """What JSON of one schema follows, and the field of the request that the schema stands in."""

    text: str
    param: str


def schema_rule(schema: dict[str, Any], param: str, *, is_strict: bool = True) -> SchemaRule:
    """Write a schema as a part of a rule; spaces between its tokens are bounded.

    Unless it `is_strict`, keywords that the library does not know are left out.

    Raises:
        BadRequest: the schema is too large, too deep, or has numbers that are too much.
    """
    if reason := reason_against(schema):
        raise BadRequest(f"{param}: {reason}", param=param, code="invalid_schema")
    # The key is the library's own; a caller's value for it is dropped.
    options = {"x-guidance": {"whitespace_pattern": _SPACE, "lenient": not is_strict}}
    try:
        text = orjson.dumps(schema | options).decode()
    except TypeError as error:
        raise BadRequest(f"{param}: it is nested too deep", param=param) from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise BadRequest(
            f"{param}: it has {len(text)} bytes as JSON; the limit is {MAX_SCHEMA_BYTES}",
            param=param,
        )
    return SchemaRule(f"%json {text}", param)


def refusal(rule: SchemaRule, reason: str) -> BadRequest:
    """What a caller is told whose schema the library cannot take."""
    return BadRequest(
        f"{rule.param}: no answer can be kept to this schema: {reason}",
        param=rule.param,
        code="invalid_schema",
    )


def why_refused(rule: str) -> str:
    """The library's reason against a rule, cut to what may be told; empty if it takes it.

    A schema can end the process that this runs in; see `gateway.structured.checker`.
    """
    grammar = f"{OPTIONS}start: {rule}\n"
    limits = LLParserLimits(verbose_errors=False)
    try:
        with name_panics():  # as over a long word whose letters take several bytes
            is_refused, reasons = LLMatcher.validate_grammar_with_warnings(grammar, limits=limits)
    except LibraryPanic:
        return "it cannot be read"
    if not is_refused:
        return ""
    return " ".join(_POSITION.sub("", reasons[0]).split())[:_MAX_REASON_CHARACTERS]
