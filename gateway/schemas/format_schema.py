"""The field of a request that says which form the answer has."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.schemas.edge import Edge, echo

FORMATS = ("text", "json_object", "json_schema")


def _check_type(value: Any) -> Any:
    if value not in FORMATS:
        raise PydanticCustomError(
            "unsupported_value",
            "the format {given} is not supported; supported are {known}",
            {"given": echo(value), "known": ", ".join(FORMATS)},
        )
    return value


class JsonSchema(Edge):
    """A schema by its name; only if `strict` is false, parts that cannot be kept are left out."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    description: str | None = None
    body: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Edge):
    type: Annotated[Literal["text", "json_object", "json_schema"], BeforeValidator(_check_type)]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None:
            raise PydanticCustomError("missing", "field required", {"field": "json_schema"})
        return self
