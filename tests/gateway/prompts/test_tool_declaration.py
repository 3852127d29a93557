"""Functions are declared in TypeScript letter for letter, or not at all."""

from typing import Any

import pytest

from gateway.prompts.template import compile_template
from gateway.prompts.tool_declaration import declare, sort_keys
from tests.templates import KIMI_TOOLS


def tool(parameters: Any, name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters} | more}


def declared(*tools: dict[str, Any]) -> str | None:
    return declare(sort_keys(list(tools)))


FLAT = {
    "type": "object",
    "required": ["where", "at"],
    "properties": {
        "where": {"type": "string", "description": "A place.\n\nOr «two».", "maxLength": 9,
                  "pattern": "^a"},
        "at": {"type": "integer", "minimum": 0, "maximum": 1.5, "default": 3},
        "unit": {"enum": ["C", "F", None], "type": ["string", "null"], "default": "C"},
        "any": {}, "on": {"type": "boolean", "default": False}, "of": {"type": ["integer", "null"]},
    },
    "additionalProperties": False,
}  # fmt: skip
FLAT_SHOWN = """\
# Tools

## functions
namespace functions {
// Look «there».
// Twice.
type look = (_: {
  // maximum: 1.5, minimum: 0
  // Default: 3
  at: number,
  // A place.

  // Or «two».
  // maxLength: 9, pattern: ^a
  where: string,
  any?: any,
  of?: number | null,
  // Default: False
  on?: boolean,
  // Default: "C"
  unit?: "C" | "F" | None,
  [k: string]: never
}) => any;
type see = (_: {}) => any;
}
"""
DEEP = {
    "type": "object",
    "$defs": {
        "spot": {"type": "object", "description": "A spot.", "required": ["x"],
                 "properties": {"x": {"type": "number"}, "next": {"$ref": "#/$defs/spot"}}},
        "kind": {"enum": ["a", 1, True]},
    },
    "properties": {
        "spots": {"type": "array", "items": {"$ref": "#/$defs/spot"}, "minItems": 1},
        "names": {"type": "array", "items": {"type": "string", "description": "A name."}},
        "kind": {"description": "Which.", "anyOf": [{"$ref": "#/$defs/kind"}, {"type": "null"}]},
        "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {
            "deep": {"type": "string"}}}},
        "list": {"type": "array"},
    },
}  # fmt: skip
DEEP_SHOWN = """\
# Tools

## functions
namespace functions {
interface kind "a" | 1 | True
// A spot.
interface spot {
  x: number,
  next?: spot
}
type f = (_: {
  // Which.
  kind?: kind | null,
  list?: Array<any>,
  map?: {
    [k: string]: {
      deep?: string
    }
  },
  names?: Array<
    // A name.
    string
  >,
  // minItems: 1
  spots?: Array<spot>
}) => any;
}
"""
ITSELF = {"properties": {"b": {"type": "string"}, "a": {"type": "array", "items": {"$ref": "#"}}},
          "required": ["b"]}  # fmt: skip
ITSELF_SHOWN = """\
# Tools

## functions
namespace functions {
interface parameters {
  a?: Array<parameters>,
  b: string
}
type f = (_: parameters) => any;
}
"""


def test_functions_are_declared_in_the_form_that_the_model_was_taught() -> None:
    look = tool(FLAT, "look", description="Look «there».\nTwice.")
    assert declared(look, tool(None, "see")) == FLAT_SHOWN
    assert declared(tool(DEEP)) == DEEP_SHOWN
    assert declared(tool(ITSELF)) == ITSELF_SHOWN


BEYOND: list[Any] = [
    {"a": {"description": "no type"}}, {"a": {"oneOf": [{"type": "string"}]}}, {"a": 5},
    {"a": {"$ref": "#/$defs/missing"}}, {"a": {"$ref": "https://h/x"}}, {"a": {"$ref": 1}},
    {"a": {"enum": [1], "type": "string"}}, {"a": {"enum": [1], "type": ["string", "integer"]}},
    {"a": {"type": ["colour"]}}, {"a": {"type": [["string"]]}}, {"a": {"anyOf": {}}}, [1],
    {"a": {"type": "string", "description": 5}}, {"a": {"type": "object", "required": 1}},
    {"a": {"type": "object", "properties": None}},
]  # fmt: skip


@pytest.mark.parametrize("properties", BEYOND)
def test_what_the_form_has_no_words_for_is_shown_as_json_with_names_in_order(
    properties: Any,
) -> None:
    tools = [tool({"type": "object", "properties": properties}), tool(FLAT, "look")]
    assert declared(*tools) is None
    shown = compile_template(KIMI_TOOLS, {}).render([{"role": "user", "content": "x"}], tools)
    assert '{"function":{"name":"f","parameters":{"properties":' in shown


def test_a_template_with_a_place_for_it_shows_the_declaration() -> None:
    message = {"role": "user", "content": "x"}
    template = compile_template(KIMI_TOOLS, {})
    assert template.takes_tools
    shown = template.render([message], [tool(DEEP)])
    assert f"<|im_system|>tool_declare<|im_middle|>{DEEP_SHOWN}<|im_end|>" in shown
    assert "tool_declare" not in template.render([message])
    as_json = compile_template(KIMI_TOOLS.replace("tools_ts_str", "false"), {})
    assert '{"type":"function","function":{"name":"f"' in as_json.render([message], [tool(DEEP)])
