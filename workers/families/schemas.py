"""What a caller's JSON schema says of a value's type. No torch; nothing a schema holds raises."""

from collections.abc import Iterable, Mapping
from typing import Any

_MAX_STEPS = 8  # from a schema to what it refers to
_BY_KEYWORD = {"properties": "object", "additionalProperties": "object", "items": "array"}


def follow(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, or what it refers to within `root`; {} if that leads nowhere."""
    for _ in range(_MAX_STEPS):
        if not isinstance(schema, Mapping):
            return {}
        reference = schema.get("$ref")
        if not isinstance(reference, str):
            return schema
        schema = _find(reference, root)
    return {}


def types_of(schema: Any, root: Mapping[str, Any]) -> tuple[str, ...]:
    """The types of JSON that a schema allows, in its order; none if it says nothing of them."""
    return _types_of(schema, root, set())


def _types_of(schema: Any, root: Mapping[str, Any], seen: set[int]) -> tuple[str, ...]:
    """The same, of what was not `seen` yet: every part is looked at once."""
    found = follow(schema, root)
    named = found.get("type")
    if isinstance(named, str):
        return (named,)
    if isinstance(named, list):
        return _unique(each for each in named if isinstance(each, str))
    if isinstance(values := [found["const"]] if "const" in found else found.get("enum"), list):
        types = _unique(map(type_of, values))
        return tuple(sorted(types, key=lambda each: each == "string"))
    for keyword in ("anyOf", "oneOf", "allOf"):
        if isinstance(parts := found.get(keyword), list):
            is_new = id(found) not in seen
            seen.add(id(found))
            return _of_parts(parts, root, seen, is_any=keyword != "allOf") if is_new else ()
    return _unique(_BY_KEYWORD[name] for name in _BY_KEYWORD if name in found)


def type_of(value: Any) -> str:
    """The name that a schema has for the type of a value of JSON."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def _of_parts(
    parts: list[Any], root: Mapping[str, Any], seen: set[int], *, is_any: bool
) -> tuple[str, ...]:
    """Types of one of the parts, which may be text if it says nothing, or of all at once."""
    types = [_types_of(part, root, seen) for part in parts]
    if is_any:
        return _unique(name for each in types for name in each or ("string",))
    return next(filter(None, types), ())


def _find(reference: str, root: Mapping[str, Any]) -> Any:
    place: Any = root if reference.startswith("#") else None
    for step in reference.lstrip("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        place = place.get(name) if isinstance(place, Mapping) else None
    return place


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
