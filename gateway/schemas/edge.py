"""What all bodies of requests have in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict

_MAX_ECHO_CHARS = 24


class Edge(BaseModel):
    """JSON types are taken as they are: no number in a string, no boolean as a number.

    Unknown fields are kept, to be named to the caller, see `gateway.schemas.ignored`.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="allow", allow_inf_nan=False)


def echo(value: Any) -> str:
    """A value as errors tell it back: never long, and nothing of what it holds."""
    if isinstance(value, str):
        return repr(value[:_MAX_ECHO_CHARS])
    return "null" if value is None else type(value).__name__
