"""What the messages of a chat may be: roles, parts of content, calls and their results."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Discriminator,
    FailFast,
    Field,
    Strict,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from gateway.schemas.edge import Edge, echo

ROLES = ("system", "developer", "user", "assistant", "tool")
PART_TYPES = ("text", "image_url", "image_tensors")
_ALL_PART_TYPES = (*PART_TYPES, "refusal")
MAX_UUID_CHARS = 256
MAX_NAME_CHARS = 256

Detail = Literal["auto", "low", "high", "original"]  # how many pixels are kept


class ImageUrl(Edge):
    url: str
    detail: Detail | None = None


class ImageTensors(Edge):
    data: str  # base64 of a safetensors file, see `gateway.images.tensors`
    detail: Detail | None = None


class TextPart(Edge):
    type: Literal["text"]
    text: str


def _wrap_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


class RefusalPart(Edge):
    """What the model once said in place of an answer."""

    type: Literal["refusal"]
    refusal: str


class NamedPart(Edge):
    """An image, the caller's own name for it, or both; a name alone stands for what it named."""

    type: str  # also the name of the field that holds the image
    uuid: Annotated[str, Field(min_length=1, max_length=MAX_UUID_CHARS)] | None = None

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        if getattr(self, self.type) is None and self.uuid is None:
            raise PydanticCustomError("missing", "field required", {"field": self.type})
        return self


class ImagePart(NamedPart):
    """An image as a file, by its address or in a data URI."""

    type: Literal["image_url"]
    image_url: Annotated[
        ImageUrl | None,
        BeforeValidator(_wrap_url, json_schema_input_type=str | ImageUrl | None),
    ] = None
    max_pixels: int | None = Field(None, ge=1)  # after resizing


class TensorPart(NamedPart):
    """An image as tensors that the caller made of it."""

    type: Literal["image_tensors"]
    image_tensors: ImageTensors | None = None


def _check_part(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("invalid_type", "a part should be an object with a type")
    if value.get("type") not in _ALL_PART_TYPES:
        raise PydanticCustomError(
            "unsupported_value",
            "part type {given} is not supported; supported are {known}",
            {"given": echo(value.get("type")), "known": ", ".join(PART_TYPES), "field": "type"},
        )
    return value


def _check_content(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise PydanticCustomError("invalid_type", "content should be a string or a list of parts")
    return value


def _check_role(value: Any) -> Any:
    if value not in ROLES:
        raise PydanticCustomError(
            "unsupported_value",
            "role {given} is not supported; supported are {known}",
            {"given": echo(value), "known": ", ".join(ROLES)},
        )
    return value


def _check_arguments(value: Any) -> Any:
    if not isinstance(value, str | dict):
        raise PydanticCustomError("invalid_type", "arguments should be a string that holds JSON")
    return value


def _none_if_null(value: Any) -> Any:
    return () if value is None else value


# Tags in angle brackets tell which branch of a union was taken; `_dotted` leaves them out.
Part = Annotated[
    Annotated[
        Annotated[TextPart, Tag("<text>")]
        | Annotated[RefusalPart, Tag("<refusal>")]
        | Annotated[ImagePart, Tag("<image_url>")]
        | Annotated[TensorPart, Tag("<image_tensors>")],
        Discriminator(lambda value: f"<{value['type']}>"),
    ],
    BeforeValidator(_check_part),
]
# A named type, because what is in a union must be hashable and `FailFast` is not.
Parts = TypeAliasType("Parts", Annotated[tuple[Part, ...], Strict(False), FailFast()])
Content = Annotated[
    Annotated[
        Annotated[str, Tag("<string>")] | Annotated[Parts, Tag("<parts>")],
        Discriminator(lambda value: "<string>" if isinstance(value, str) else "<parts>"),
    ],
    BeforeValidator(_check_content),
]


class FunctionCall(Edge):
    """A call that the model made in an earlier answer."""

    name: Annotated[str, Field(min_length=1)]
    arguments: Annotated[  # JSON, or the object itself
        Any, BeforeValidator(_check_arguments, json_schema_input_type=str | dict[str, Any])
    ]


class ToolCall(Edge):
    id: Annotated[str, Field(min_length=1)]
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Edge):
    role: Annotated[
        Literal["system", "developer", "user", "assistant", "tool"], BeforeValidator(_check_role)
    ]
    content: Content | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    tool_calls: Annotated[
        tuple[ToolCall, ...],
        Strict(False),
        FailFast(),
        BeforeValidator(_none_if_null, json_schema_input_type=list[ToolCall] | None),
    ] = ()
    tool_call_id: Annotated[str, Field(min_length=1)] | None = None
    # A participant, for templates that tell one from another.
    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)] | None = None

    @model_validator(mode="after")
    def _check_role_fields(self) -> Self:
        if self.role != "assistant":
            for name in ("refusal", "reasoning_content", "tool_calls"):
                if getattr(self, name):
                    raise _out_of_place(name, "assistant")
        if self.role != "tool" and self.tool_call_id is not None:
            raise _out_of_place("tool_call_id", "tool")
        if self.role == "tool" and self.tool_call_id is None:
            raise PydanticCustomError("missing", "field required", {"field": "tool_call_id"})
        return self

    @model_validator(mode="after")
    def _check_content_of_role(self) -> Self:
        """An assistant may have said nothing, and a tool may have nothing to tell."""
        if self.content is None and self.role != "assistant":
            kind = "invalid_type" if "content" in self.model_fields_set else "missing"
            words = "content should be a string or a list of parts"
            raise PydanticCustomError(kind, words, {"field": "content"})
        if self.content == () and self.role not in ("assistant", "tool"):
            raise PydanticCustomError(
                "invalid_value", "content should hold at least one part", {"field": "content"}
            )
        for index, part in enumerate(self.parts):
            if isinstance(part, RefusalPart) and self.role != "assistant":
                raise _out_of_place(f"content[{index}].type", "assistant")
        return self

    @property
    def is_plain(self) -> bool:
        """Whether its content is a string, or nothing."""
        return not isinstance(self.content, tuple) or not self.content

    @property
    def parts(self) -> tuple[TextPart | RefusalPart | ImagePart | TensorPart, ...]:
        """The content as parts; a plain string is one part, a mere refusal another."""
        if self.content is None and self.refusal is not None:
            return (RefusalPart(type="refusal", refusal=self.refusal),)
        if isinstance(self.content, tuple) and self.content:
            return self.content
        return (TextPart(type="text", text=self.content if isinstance(self.content, str) else ""),)


def _out_of_place(field: str, role: str) -> PydanticCustomError:
    return PydanticCustomError(
        "invalid_value", "only a message of the role {role} has it", {"role": role, "field": field}
    )
