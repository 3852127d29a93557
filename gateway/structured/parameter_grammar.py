"""A function's parameters in, rules out that arguments follow which are written one by one."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import BadRequest
from gateway.structured.json_grammar import SchemaRule, schema_rule
from workers.families.answers import ParameterSyntax
from workers.families.schemas import follow, type_of, types_of

_ANY_NAME = "/[A-Za-z_][A-Za-z0-9_]{0,63}/"
_UNWRITABLE = re.compile(r"[<>\n]|^\s|\s$|^$")
_MAX_TEXT_CHARACTERS = 1024  # of lengths that are counted; automata grow with them
_MAX_STEPS = 8  # from a choice to one within it
_MAX_VALUES = 4096  # of all functions together, in choices too
_NOTES = frozenset({
    "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly",
    "$schema", "$id", "$comment", "$defs", "definitions", "x-guidance",
})  # fmt: skip
_OF_OBJECTS = _NOTES | {"type", "properties", "required", "additionalProperties"}
_OF_TEXTS = _NOTES | {"type", "minLength", "maxLength"}
_OF_CHOICES = _NOTES | {"type", "anyOf", "oneOf"}
_OF_VALUES = _NOTES | {"type", "enum", "const"}


@dataclass(slots=True)
class ParameterRules:
    """Writes the rules of one set of functions. Owned by whoever makes a grammar.

    Texts are kept to a length and to listed values; what else a schema asks of one is refused if
    the function is strict, and left out if not.
    """

    syntax: ParameterSyntax
    schemas: list[SchemaRule] = field(default_factory=list)  # parts that the library has to check
    _texts: dict[tuple[int, int | None], str] = field(default_factory=dict)
    _num_values: int = 0

    def arguments(self, schema: Mapping[str, Any], param: str, *, is_strict: bool) -> str:
        """What the arguments of one function follow, in its schema's order.

        Raises:
            BadRequest: no arguments in this form can be kept to the schema, or it is too large.
        """
        writer = _Writer(self, schema, param, is_strict)
        root = follow(schema, schema)
        writer.refuse_beyond(_OF_OBJECTS, root)
        properties, required = root.get("properties", {}), root.get("required", [])
        if not (isinstance(properties, dict) and isinstance(required, list)):
            raise _refusal(param, "properties should be an object, and required a list")
        wanted = [each for each in required if isinstance(each, str)]
        known = properties | {each: {} for each in wanted if each not in properties}
        parts = []
        for name, each in known.items():
            if _UNWRITABLE.search(name):
                raise _refusal(param, f"no parameter can be called {name[:40]!r}")
            one = self._one(json.dumps(name, ensure_ascii=False), writer.value(each))
            parts.append(one if name in wanted else f"({one})?")
        others = root.get("additionalProperties", True)
        if not known and others is not False:
            parts.append(f"({self._one(_ANY_NAME, writer.value(others))})*")
        return " ".join(parts)

    def text(self, least: int, most: int | None) -> str:
        """The rule of a text of some characters, with its end."""
        bounds = (least, None if most is None else max(least, most))
        return self._texts.setdefault(bounds, f"text_{len(self._texts)}")

    def count(self, param: str) -> None:
        """Count one more value: choices that refer to each other come to any number."""
        self._num_values += 1
        if self._num_values > _MAX_VALUES:
            raise _refusal(param, f"tools have more than {_MAX_VALUES} values to choose from")

    def rules(self) -> str:
        """The rules that `arguments` refers to."""
        never = "|".join(map(re.escape, self.syntax.never)).replace("/", r"\/")
        never = never.replace("\\\n", r"\n")
        end = json.dumps(self.syntax.end)
        return "".join(
            f"{name}[suffix={end}]: /(?s:.{{{least},{'' if most is None else most}}})/"
            f" & ~/(?s:.*({never}).*)/\n"
            for (least, most), name in self._texts.items()
        )

    def _one(self, name: str, value: str) -> str:
        head, middle, tail = map(
            json.dumps, (self.syntax.head, self.syntax.middle, self.syntax.tail)
        )
        return f"{head} {name} {middle} {value} {tail}"


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes values of one function."""

    rules: ParameterRules
    root: Mapping[str, Any]
    param: str
    is_strict: bool

    def value(self, schema: Any, steps: int = _MAX_STEPS) -> str:
        """What a value follows, with its end."""
        self.rules.count(self.param)
        found = follow(schema, self.root)
        values = [found["const"]] if "const" in found else found.get("enum")
        if isinstance(values, list) and values:
            self.refuse_beyond(_OF_VALUES, found)
            return _any_of(map(self._literal, values))
        parts = found.get("anyOf", found.get("oneOf"))
        if isinstance(parts, list) and parts and steps:
            self.refuse_beyond(_OF_CHOICES, found)
            return _any_of(self.value(each, steps - 1) for each in parts)
        types = types_of(found, self.root) or ("string",)
        return _any_of(self._of_type(name, found, alone=len(types) == 1) for name in types)

    def refuse_beyond(self, known: frozenset[str], schema: Mapping[str, Any]) -> None:
        """Raise `BadRequest` for what cannot be kept to, if it has to be."""
        others = sorted(schema.keys() - known)
        if others and self.is_strict:
            reason = f"in calls of this model's form {others[0][:40]!r} is not kept to"
            raise _refusal(self.param, reason)

    def _of_type(self, name: str, schema: Mapping[str, Any], *, alone: bool) -> str:
        if name != "string":
            return self._json(schema if alone else {**schema, "type": name})
        if alone:
            self.refuse_beyond(_OF_TEXTS, schema)
        least, most = (_length(schema.get(key)) for key in ("minLength", "maxLength"))
        if self.is_strict and max(least or 0, most or 0) > _MAX_TEXT_CHARACTERS:
            raise _refusal(self.param, f"texts are counted up to {_MAX_TEXT_CHARACTERS} characters")
        is_counted = most is not None and most <= _MAX_TEXT_CHARACTERS
        return self.rules.text(min(least or 0, _MAX_TEXT_CHARACTERS), most if is_counted else None)

    def _json(self, schema: Mapping[str, Any]) -> str:
        own = {key: self.root[key] for key in ("$defs", "definitions") if key in self.root}
        rule = schema_rule({**own, **schema}, self.param, is_strict=self.is_strict)
        self.rules.schemas.append(rule)
        return f"{rule.text} {json.dumps(self.rules.syntax.end)}"

    def _literal(self, value: Any) -> str:
        is_text = type_of(value) == "string"
        text = value if is_text else json.dumps(value, ensure_ascii=False)
        return json.dumps(text + self.rules.syntax.end, ensure_ascii=False)


def _any_of(rules: Iterable[str]) -> str:
    return f"({' | '.join(dict.fromkeys(rules))})"


def _length(value: Any) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _refusal(param: str, reason: str) -> BadRequest:
    return BadRequest(
        f"{param}: no arguments can be kept to this schema: {reason}",
        param=param,
        code="invalid_schema",
    )
