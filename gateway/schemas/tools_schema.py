"""The fields of a request that say which functions the model may call."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, FailFast, Field, Strict, Tag, model_validator
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from gateway.schemas.edge import Edge, echo

MAX_TOOLS = 128
MAX_TOOL_DEPTH = 32  # of objects and lists within each other
CHOICES = ("none", "auto", "required")
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class Function(Edge):
    name: FunctionName
    description: str | None = None
    parameters: dict[str, Any] | None = None  # a JSON schema
    strict: bool | None = None


def _check_type(value: Any) -> Any:
    if isinstance(value, dict) and value.get("type", "function") != "function":
        raise PydanticCustomError(
            "unsupported_value",
            "type {given} is not supported; supported is function",
            {"given": echo(value["type"]), "field": "type"},
        )
    return value


class Tool(Edge):
    """A function that the model may call; `given` is the tool as it came, for the template."""

    type: Literal["function"]
    function: Function
    given: SkipJsonSchema[dict[str, Any]]

    @model_validator(mode="before")
    @classmethod
    def _keep(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if is_deeper(value, MAX_TOOL_DEPTH):
            raise PydanticCustomError(
                "invalid_value", "it is nested deeper than {limit}", {"limit": MAX_TOOL_DEPTH}
            )
        return {**_check_type(value), "given": value}


class NamedFunction(Edge):
    name: FunctionName


class NamedChoice(Edge):
    type: Literal["function"]
    function: NamedFunction


def _check_choice(value: Any) -> Any:
    if isinstance(value, dict):
        return _check_type(value)
    if value not in CHOICES:
        raise PydanticCustomError(
            "unsupported_value",
            "{given} is not supported; supported are {known}, or a function by its name",
            {"given": echo(value), "known": ", ".join(CHOICES)},
        )
    return value


# Tags in angle brackets are left out of the path of a mistake.
Choice = Annotated[
    Annotated[
        Annotated[Literal["none", "auto", "required"], Tag("<word>")]
        | Annotated[NamedChoice, Tag("<named>")],
        Discriminator(lambda value: "<word>" if isinstance(value, str) else "<named>"),
    ],
    BeforeValidator(_check_choice),
]


class ToolFields(Edge):
    """Fields of OpenAI's. Without tools the others ask for nothing."""

    tools: Annotated[tuple[Tool, ...], Strict(False), FailFast(), Field(max_length=MAX_TOOLS)] = ()
    tool_choice: Choice = "auto"
    parallel_tool_calls: bool = True


def is_deeper(value: Any, limit: int) -> bool:
    """Whether objects and lists are nested in each other more than `limit` times."""
    layer = [value]
    for _ in range(limit + 1):
        layer = [
            inner
            for each in layer
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return True
