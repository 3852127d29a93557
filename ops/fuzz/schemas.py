"""JSON schemas as inputs: read as the gateway does, then followed by a grammar as an engine does.

The library that does both is no Python, and a schema that it stumbles over would end the process.
"""

import json
from random import Random
from typing import Any

from config.settings import DEMO_MODEL
from gateway.errors import BadRequest
from gateway.prompts.checkpoint import load_checkpoint
from gateway.structured.checker import judge
from gateway.structured.json_grammar import OPTIONS, refusal, schema_rule
from ops.fuzz.target import Wrong
from ops.fuzz.trees import damage
from workers.language.grammar import Fault, Follower, Grammars, Outlook

_MAX_DEPTH = 4
_STEPS = 6  # tokens of each answer
_WAIT_SECONDS = 20.0
_NUMBERS = (
    0, 1, -1, 3, 1.5, -0.5, 1e-9, 1e15, 1e19, 1e308, -1e308, 2**31, 2**53, 2**62, 2**63 - 1, 2**63,
    -(2**31), -(2**53), -(2**62), -(2**63) + 1, -(2**63), 10**18, -(10**18), 100, 2000,
)  # fmt: skip
_COUNTS = (0, 1, 2, 5, 100, 5000, 2**31, -1)
_PATTERNS = (
    "a", "^a$", "[a-z]{1,3}", "(a|b)*c", "(a+)+$", "a{1000}", "(a{99}){99}", "\\d+", "\\p{L}+",
    "[^a]", "(?i)x", "(?=a)b", "(?!a)b", "\\bword\\b", "", "(", "[", "a{2,1}", "^$", ".*", "a**",
)  # fmt: skip
_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")
_FORMATS = ("date", "date-time", "email", "uuid", "ipv4", "uri", "regex", "duration", "unknown")
_WORDS = ("a", "b", "", "c d", "é", "a" + 99 * "é", "\U0001f600" * 30, "$ref", "x" * 300)
_PLACES = ("#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/$defs/missing", "http://a.example/")
_NAMES = (
    "type", "enum", "const", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
    "multipleOf", "minLength", "maxLength", "pattern", "format", "items", "prefixItems", "minItems",
    "maxItems", "properties", "required", "additionalProperties", "patternProperties", "allOf",
    "anyOf", "oneOf", "not", "$ref", "$defs", "minProperties", "maxProperties", "if", "then",
    "propertyNames", "uniqueItems", "contains", "default", "title", "$schema", "x-guidance",
)  # fmt: skip


class Schemas:
    """Schemas of answers."""

    def __init__(self) -> None:
        vocabulary = load_checkpoint(DEMO_MODEL).vocabulary()
        self._grammars = Grammars(vocabulary, len(vocabulary.spellings))

    def make(self, chance: Random) -> bytes:
        """A schema as JSON, of keywords that mostly have what they should."""
        tree = _schema(chance, 0) | {"$defs": {name: _schema(chance, 2) for name in ("a", "b")}}
        if chance.random() < 0.4:
            tree = damage(tree, _NAMES, chance)
        return json.dumps(tree if isinstance(tree, dict) else {"const": tree}).encode()

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        try:
            rule = schema_rule(json.loads(data), "response_format", is_strict=bool(data[-2] & 1))
            if reason := judge([rule.text]).reason:
                raise refusal(rule, reason)
        except BadRequest as error:
            if len(error.message) > 300:
                raise Wrong(f"an error of {len(error.message)} characters") from error
            return f"refused: {error.code}"
        follower = self._grammars.begin(f"{OPTIONS}start: {rule.text}\n")
        for _ in range(_STEPS):
            outlook = self._look(follower)
            if isinstance(outlook, Fault):
                if outlook.kind != "bad_input":
                    raise Wrong(f"the engine fails: {outlook.message}")
                return f"not followed: {outlook.message[:60]}"
            if outlook.is_over:
                return "followed to its end"
            follower.advance(_some_token(outlook, data))
        return "followed"

    def _look(self, follower: Follower) -> Outlook | Fault:
        while not follower.is_ready:
            self._grammars.wait(_WAIT_SECONDS)
        return follower.outlook

    def close(self) -> None:
        """Nothing is held but idle threads."""


def _some_token(outlook: Outlook, data: bytes) -> int:
    """One of the tokens that are allowed; which, the input decides."""
    places = [
        8 * place + bit
        for place, byte in enumerate(outlook.allowed.tolist())
        for bit in range(8)
        if byte >> bit & 1
    ]
    return places[len(data) % len(places)]


def _schema(chance: Random, depth: int) -> dict[str, Any]:
    kinds = (_leaf, _leaf, _number, _string, _array, _object, _several, _reference)
    made = chance.choice(kinds[:4] if depth >= _MAX_DEPTH else kinds)(chance, depth + 1)
    if chance.random() < 0.15:
        made |= chance.choice(kinds[:4])(chance, depth + 1)
    return made


def _leaf(chance: Random, depth: int) -> dict[str, Any]:
    value = chance.choice((*_NUMBERS, *_WORDS, None, True, [1, [2]], {"a": 1}))
    few = [chance.choice((*_NUMBERS, *_WORDS)) for _ in range(chance.randrange(4))]
    kinds = [chance.choice(_TYPES) for _ in range(chance.randrange(1, 4))]
    return chance.choice(({"const": value}, {"enum": few}, {"type": kinds}, {"type": kinds[0]}))


def _number(chance: Random, depth: int) -> dict[str, Any]:
    names = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
    chosen = chance.sample(names, chance.randrange(1, 4))
    kind = chance.choice(("integer", "number"))
    return {"type": kind} | {name: chance.choice(_NUMBERS) for name in chosen}


def _string(chance: Random, depth: int) -> dict[str, Any]:
    wishes: dict[str, Any] = {
        "pattern": chance.choice(_PATTERNS),
        "format": chance.choice(_FORMATS),
        "minLength": chance.choice(_COUNTS),
        "maxLength": chance.choice(_COUNTS),
    }
    chosen = chance.sample(sorted(wishes), chance.randrange(1, 4))
    return {"type": "string"} | {name: wishes[name] for name in chosen}


def _array(chance: Random, depth: int) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "array", "items": _schema(chance, depth)}
    if chance.random() < 0.3:
        made["prefixItems"] = [_schema(chance, depth) for _ in range(chance.randrange(3))]
    return made | {name: chance.choice(_COUNTS) for name in ("minItems", "maxItems")[: depth % 3]}


def _object(chance: Random, depth: int) -> dict[str, Any]:
    names = chance.sample(_WORDS, chance.randrange(4))
    made: dict[str, Any] = {
        "type": "object",
        "properties": {name: _schema(chance, depth) for name in names},
        "required": chance.sample(_WORDS, chance.randrange(3)),
        "additionalProperties": chance.choice((True, False, _schema(chance, depth))),
    }
    if chance.random() < 0.2:
        made["patternProperties"] = {chance.choice(_PATTERNS): _schema(chance, depth)}
    if chance.random() < 0.1:
        made[chance.choice(("minProperties", "maxProperties"))] = chance.choice(_COUNTS)
    return made


def _several(chance: Random, depth: int) -> dict[str, Any]:
    name = chance.choice(("anyOf", "allOf", "oneOf"))
    return {name: [_schema(chance, depth) for _ in range(chance.randrange(1, 4))]}


def _reference(chance: Random, depth: int) -> dict[str, Any]:
    return {"$ref": chance.choice(_PLACES)}
