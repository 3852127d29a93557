"""Functions as JSON in, their declaration in TypeScript out, which Kimi's templates ask for.

Kimi-K2.5 was taught tools in this form, that its own tokenizer's code writes and its template only
shows, so it is written here to the letter. What the form has no words for is shown as JSON.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_INDENT = "  "
_UNIONS = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
    "object": "{}",
    "array": "Array<any>",
}
_LIMITS = {  # what is told of a type beside its description
    "string": ("maxLength", "minLength", "pattern"),
    "number": ("maximum", "minimum"),
    "integer": ("maximum", "minimum"),
    "array": ("maxItems", "minItems"),
}
_CLASSES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "number": (int, float),
    "integer": int,
    "boolean": bool,
}


class _NoWords(Exception):
    """The form cannot say this."""


def sort_keys(value: Any) -> Any:
    """JSON with the names of all objects in order."""
    if isinstance(value, dict):
        return {name: sort_keys(value[name]) for name in sorted(value)}
    if isinstance(value, list):
        return [sort_keys(each) for each in value]
    return value


def declare(tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Declare functions whose names are in order; None if one cannot be said in this form."""
    try:
        functions = "\n".join(_Declaration().function(tool["function"]) for tool in tools)
    except _NoWords:
        return None
    return f"# Tools\n\n## functions\nnamespace functions {{\n{functions}\n}}\n"


@dataclass(slots=True)
class _Declaration:
    """Writes one function."""

    definitions: dict[str, Any] = field(default_factory=dict)  # those that came by now
    refers_to_itself: bool = False

    def function(self, function: Mapping[str, Any]) -> str:
        parameters = _object(function.get("parameters") or {})
        taken = self._object(parameters, "")
        lines = []
        if self.refers_to_itself:
            taken = "parameters"
            fields = self._fields(parameters, _INDENT, in_order=False)
            lines.append(f"interface parameters {_braces(fields, '')}")
        for name, schema in list(self.definitions.items()):
            described = _object(schema).get("description") or ""
            lines.append(f"{_comment(described, '')}interface {name} {self._type(schema, '')}")
        described = _comment(function.get("description") or "", "")
        return "\n".join([*lines, f"{described}type {function['name']} = (_: {taken}) => any;"])

    def _type(self, schema: Any, indent: str) -> str:
        if isinstance(schema, bool) or schema == {}:
            return "null" if schema is False else "any"
        schema = _object(schema)
        if "$ref" in schema:
            return self._reference(schema["$ref"])
        if "anyOf" in schema:
            return " | ".join(self._type(each, indent) for each in _list(schema["anyOf"]))
        if "enum" in schema:
            return _enum(_list(schema["enum"]), schema.get("type"))
        return self._named(schema.get("type"), schema, indent)

    def _named(self, name: Any, schema: Mapping[str, Any], indent: str) -> str:
        """The type that a schema calls by its name."""
        if isinstance(name, list):
            return " | ".join(map(_look_up, name))
        if name == "object":
            return self._object(schema, indent)
        if name == "array":
            return self._array(schema, indent)
        if not isinstance(name, str):
            raise _NoWords
        return "number" if name == "integer" else name

    def _reference(self, reference: Any) -> str:
        if reference == "#":
            self.refers_to_itself = True
            return "parameters"
        name = str(reference).rpartition("/")[2]
        if reference != f"#/$defs/{name}" or name not in self.definitions:
            raise _NoWords
        return name

    def _object(self, schema: Mapping[str, Any], indent: str) -> str:
        self.definitions |= _object(schema.get("$defs") or {})
        inner = indent + _INDENT
        others = schema.get("additionalProperties")
        fields = self._fields(schema, inner, in_order=True)
        if others is not None:
            shown = "never" if others is False else self._type(others, inner)
            fields.append(f"{inner}[k: string]: {shown}")
        return _braces(fields, indent)

    def _fields(self, schema: Mapping[str, Any], indent: str, *, in_order: bool) -> list[str]:
        """The properties; those that are required first, if they are to be `in_order`."""
        properties = _object(schema.get("properties", {}))
        required = _list(schema.get("required", []))
        names = list(properties)
        if in_order:
            names.sort(key=lambda name: (name not in required, name))
        return [self._field(name, properties[name], name in required, indent) for name in names]

    def _field(self, name: str, schema: Any, is_required: bool, indent: str) -> str:
        default = schema.get("default") if isinstance(schema, dict) else None
        told = ""
        if default is not None:
            is_number = isinstance(default, int | float)
            shown = repr(default) if is_number else json.dumps(default, ensure_ascii=False)
            told = f"{indent}// Default: {shown}\n"
        mark = "" if is_required else "?"
        return f"{_notes(schema, indent)}{told}{indent}{name}{mark}: {self._type(schema, indent)}"

    def _array(self, schema: Mapping[str, Any], indent: str) -> str:
        items = schema.get("items") or {}
        inner = indent + _INDENT
        notes = _notes(items, inner)
        if not notes:
            return f"Array<{self._type(items, indent)}>"
        return f"Array<\n{notes}{inner}{self._type(items, inner)}\n{indent}>"


def _braces(fields: Sequence[str], indent: str) -> str:
    inside = ",\n".join(fields)
    return f"{{\n{inside}\n{indent}}}" if fields else "{}"


def _notes(schema: Any, indent: str) -> str:
    """What is said of a type before it: its description, and its limits."""
    if not isinstance(schema, dict):
        return ""
    described = _comment(schema.get("description") or "", indent)
    is_plain = not schema.keys() & {"$ref", "anyOf", "enum"}
    name = schema.get("type")
    known = _LIMITS.get(name, ()) if is_plain and isinstance(name, str) else ()
    limits = ", ".join(f"{key}: {schema[key]}" for key in known if key in schema)
    return described + (f"{indent}// {limits}\n" if limits else "")


def _comment(text: Any, indent: str) -> str:
    if not isinstance(text, str):
        raise _NoWords
    lines = (f"{indent}// {line}" if line else "" for line in text.split("\n"))
    return "".join(f"{line}\n" for line in lines) if text else ""


def _enum(values: list[Any], types: Any) -> str:
    """The values, if all are of the type that is named, of which null may be another."""
    if isinstance(types, list):
        named = [each for each in types if each != "null"] if len(types) > 1 else types
        if len(named) != 1 or len(types) > 2:
            raise _NoWords
        types = named[0]
    expected = _CLASSES.get(types) if isinstance(types, str) else None
    if expected and not all(value is None or isinstance(value, expected) for value in values):
        raise _NoWords
    return " | ".join(f'"{value}"' if isinstance(value, str) else str(value) for value in values)


def _look_up(name: Any) -> str:
    if not isinstance(name, str) or name not in _UNIONS:
        raise _NoWords
    return _UNIONS[name]


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _NoWords
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _NoWords
    return value
