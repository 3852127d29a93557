"""Arguments of an earlier call as a caller sends them back in, as chat templates take them out."""

import json
from typing import Any, NoReturn

from gateway.schemas.tools_schema import MAX_TOOL_DEPTH, is_deeper


def parse_arguments(given: str | dict[str, Any]) -> dict[str, Any] | str:
    """The object that a string of JSON holds; nothing written is no arguments.

    What is no JSON object stays the string that it is: a model may have written it so, and the
    template shows what it wrote.
    """
    if isinstance(given, str) and not given.strip():
        return {}
    value = given
    if isinstance(given, str):
        try:
            value = json.loads(given, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return given
    if not isinstance(value, dict) or is_deeper(value, MAX_TOOL_DEPTH):
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
