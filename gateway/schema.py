"""The body of POST /v1/chat/completions in, a checked `ChatRequest` out.

Whatever is wrong with a body ends as `BadRequest` with the dotted path of the field to blame.
"""

from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import (
    BeforeValidator,
    Discriminator,
    FailFast,
    Field,
    Strict,
    Tag,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails, PydanticCustomError
from typing_extensions import TypeAliasType

from gateway.edge import Edge, echo
from gateway.errors import BadRequest, BodyTooLarge
from gateway.format_schema import ResponseFormat
from gateway.sampling_schema import SamplingFields
from gateway.unsupported import (
    HARMLESS_FIELDS,
    MESSAGE_FIELDS,
    REQUEST_FIELDS,
    refuse_unsupported,
)

ROLES = ("system", "developer", "user", "assistant")
PART_TYPES = ("text", "image_url", "image_tensors")
MAX_UUID_CHARS = 256
# Parsing cannot be interrupted: it keeps every other request waiting. An honest body holds long
# strings; one of this many values takes about a second, one of millions would take a minute.
MAX_BODY_MARKS = 250_000
_MARKS = (b",", b"[", b"{")
_MAX_NOTED_FIELDS = 32


Detail = Literal["auto", "low", "high", "original"]  # a hint; sizes follow the model


class ImageUrl(Edge):
    url: str
    detail: Detail | None = None


class ImageTensors(Edge):
    data: str  # base64 of a safetensors file, see `gateway.tensors`
    detail: Detail | None = None


class TextPart(Edge):
    type: Literal["text"]
    text: str


def _wrap_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


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
    image_url: Annotated[ImageUrl | None, BeforeValidator(_wrap_url)] = None


class TensorPart(NamedPart):
    """An image as tensors that the caller made of it."""

    type: Literal["image_tensors"]
    image_tensors: ImageTensors | None = None


def _check_part(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("invalid_type", "a part should be an object with a type")
    if value.get("type") not in PART_TYPES:
        raise PydanticCustomError(
            "unsupported_value",
            "part type {given} is not supported; supported are {known}",
            {"given": echo(value.get("type")), "known": ", ".join(PART_TYPES), "field": "type"},
        )
    return value


def _check_content(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise PydanticCustomError("invalid_type", "content should be a string or a list of parts")
    if value == []:
        raise PydanticCustomError("invalid_value", "content should hold at least one part")
    return value


def _check_role(value: Any) -> Any:
    if value not in ROLES:
        raise PydanticCustomError(
            "unsupported_value",
            "role {given} is not supported; supported are {known}",
            {"given": echo(value), "known": ", ".join(ROLES)},
        )
    return value


# Tags in angle brackets tell which branch of a union was taken; `_dotted` leaves them out.
Part = Annotated[
    Annotated[
        Annotated[TextPart, Tag("<text>")]
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


class Message(Edge):
    role: Annotated[
        Literal["system", "developer", "user", "assistant"], BeforeValidator(_check_role)
    ]
    content: Content

    @property
    def parts(self) -> tuple[TextPart | ImagePart | TensorPart, ...]:
        """The content as parts; a plain string is one part."""
        if isinstance(self.content, str):
            return (TextPart(type="text", text=self.content),)
        return self.content


class StreamOptions(Edge):
    include_usage: bool | None = None


class ChatRequest(SamplingFields):
    """The fields that are honoured; `null` was taken out before, so it means absent."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[tuple[Message, ...], Strict(False), FailFast(), Field(min_length=1)]
    response_format: ResponseFormat = ResponseFormat(type="text")
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    unknown_fields: tuple[str, ...] = ()  # names that nobody here knows; they change nothing


_HONOURED = frozenset(ChatRequest.model_fields) - {"unknown_fields"}
# JSON's words where pydantic uses Python's.
_WORDINGS = {
    "model_type": "input should be an object",
    "tuple_type": "input should be a list",
    "too_short": "list should have at least {min_length} item(s), not {actual_length}",
    "too_long": "list should have at most {max_length} items, not {actual_length}",
}
_KNOWN = _HONOURED | HARMLESS_FIELDS | frozenset(REQUEST_FIELDS)


def parse_request(body: bytes) -> ChatRequest:
    """Check a request body and keep what is honoured of it.

    Raises:
        BadRequest: the body is no JSON object, a field is missing, of the wrong type, out of
            range, or asks for something that is not supported.
        BodyTooLarge: the body has too many parts to be looked at.
    """
    num_marks = sum(map(body.count, _MARKS))
    if num_marks > MAX_BODY_MARKS:
        raise BodyTooLarge(
            f"the request body holds {num_marks} commas and opening brackets; "
            f"the limit is {MAX_BODY_MARKS}"
        )
    fields = _load_object(body)
    refuse_unsupported(fields, REQUEST_FIELDS)
    _refuse_in_messages(fields.get("messages"))
    honoured = {name: fields[name] for name in _HONOURED if fields.get(name) is not None}
    unknown = sorted(name[:64] for name in fields.keys() - _KNOWN)[:_MAX_NOTED_FIELDS]
    try:
        return ChatRequest.model_validate({**honoured, "unknown_fields": tuple(unknown)})
    except ValidationError as error:
        raise _bad_request(error.errors(include_url=False)[0]) from error


def _load_object(body: bytes) -> dict[str, Any]:
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(fields, dict):
        raise BadRequest("the body should be a JSON object", code="invalid_json")
    return fields


def _refuse_in_messages(messages: Any) -> None:
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            refuse_unsupported(message, MESSAGE_FIELDS, f"messages[{index}].")


def _bad_request(error: ErrorDetails) -> BadRequest:
    context = error.get("ctx", {})
    location = error["loc"] + ((context["field"],) if "field" in context else ())
    param = _dotted(location)
    wording = _WORDINGS.get(error["type"])
    message = wording.format(**context) if wording else error["msg"]
    message = message[0].lower() + message[1:]
    given = error["input"]
    if isinstance(given, int | float):
        message = f"{message}; it is {str(given).lower()}"
    return BadRequest(f"{param}: {message}", param=param, code=_code(error["type"]))


def _code(kind: str) -> str:
    """OpenAI's word for a kind of mistake, as pydantic or a check above names it."""
    if kind == "missing":
        return "missing_required_parameter"
    if kind.endswith("_type"):
        return "invalid_type"
    return "unsupported_value" if kind == "unsupported_value" else "invalid_value"


def _dotted(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        if isinstance(step, int):
            path += f"[{step}]"
        elif not step.startswith("<"):
            path += f".{step}" if path else step
    return path
