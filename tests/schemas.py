"""JSON schemas of many kinds; whatever follows one is of bounded length."""

from typing import Any

Schema = dict[str, Any]


def record(required: bool = True, **properties: Schema) -> Schema:
    """An object with these properties and no others."""
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return schema | {"required": list(properties)} if required else schema


def listed(items: Schema, least: int, most: int) -> Schema:
    return {"type": "array", "items": items, "minItems": least, "maxItems": most}


WORD: Schema = {"type": "string", "maxLength": 8}
AGE: Schema = {"type": "integer", "minimum": 0, "maximum": 150}
COLOUR: Schema = {"enum": ["red", "dark green", 'a "quoted" one', "blå", 7, None]}
POINT = record(x={"type": "number", "minimum": -5, "maximum": 5}, y=AGE)

SCHEMAS: dict[str, Schema] = {
    "enum": COLOUR,
    "constant": {"const": {"a": [1, 2.5, None, 'é"\\\n']}},
    "string": {"type": "string", "minLength": 2, "maxLength": 6},
    "integer": {"type": "integer", "minimum": -37, "maximum": 410},
    "number": {"type": "number", "exclusiveMinimum": 0.25, "maximum": 3.5},
    "multiple": {"type": "integer", "multipleOf": 7, "minimum": 0, "maximum": 700},
    "truth": {"type": ["boolean", "null"]},
    "record": record(name=WORD, age=AGE, colour=COLOUR),
    "optional": record(required=False, a=AGE, b=WORD, c=COLOUR),
    "nested": record(at=POINT, more=record(deep=record(deeper=WORD))),
    "list": listed(AGE, 2, 5),
    "list of records": listed(POINT, 1, 3),
    "tuple": {"type": "array", "prefixItems": [AGE, WORD], "items": False, "minItems": 2},
    "any of": {"anyOf": [POINT, WORD, listed(AGE, 0, 2)]},
    "one of": {
        "oneOf": [
            record(kind={"const": "cat"}, lives=AGE),
            record(kind={"const": "dog"}, name=WORD),
        ]
    },
    "all of": {
        "allOf": [
            {"type": "object", "properties": {"a": AGE}, "required": ["a"]},
            {"type": "object", "properties": {"b": WORD}, "required": ["b"]},
        ],
        "additionalProperties": False,
        "properties": {"a": True, "b": True},
    },
    "reference": {
        "$defs": {"point": POINT},
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/point"}, "to": {"$ref": "#/$defs/point"}},
        "required": ["from", "to"],
        "additionalProperties": False,
    },
    "pattern": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3,4}$"},
    "date": {"type": "string", "format": "date"},
    "address": {"type": "string", "format": "uuid"},
    "map": {
        "type": "object",
        "patternProperties": {"^[a-c]{1,3}$": AGE},
        "additionalProperties": False,
        "maxProperties": 2,
    },
    "described": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Person",
        "description": "Somebody.",
        "default": {},
    }
    | record(name=WORD | {"title": "Name", "examples": ["Ann"]}),
}
