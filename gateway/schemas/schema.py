"""The body of POST /v1/chat/completions in, a checked `ChatRequest` out.

Whatever is wrong with a body ends as `BadRequest` with the dotted path of the field to blame.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import orjson
from pydantic import FailFast, Field, Strict, ValidationError
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails

from gateway.errors import BadRequest, BodyTooLarge
from gateway.schemas.edge import Edge
from gateway.schemas.format_schema import ResponseFormat
from gateway.schemas.ignored import unknown_in
from gateway.schemas.message_schema import Message
from gateway.schemas.sampling_schema import SamplingFields
from gateway.schemas.template_schema import TemplateFields
from gateway.schemas.tools_schema import ToolFields
from gateway.schemas.unsupported import (
    HARMLESS_FIELDS,
    HARMLESS_INSIDE,
    MESSAGE_FIELDS,
    REQUEST_FIELDS,
    STREAM_FIELDS,
    refuse_unsupported,
)

Body = TypeVar("Body", bound=Edge)

# Parsing cannot be interrupted: it keeps every other request waiting. An honest body holds long
# strings; one of this many values takes about a second, one of millions would take a minute.
MAX_BODY_MARKS = 250_000
_MARKS = (b",", b"[", b"{")


class StreamOptions(Edge):
    include_usage: bool | None = None


class ChatRequest(SamplingFields, TemplateFields, ToolFields):
    """The fields that are honoured; `null` was taken out before, so it means absent."""

    model: Annotated[str, Field(min_length=1)]
    messages: Annotated[tuple[Message, ...], Strict(False), FailFast(), Field(min_length=1)]
    response_format: ResponseFormat = ResponseFormat(type="text")
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    # Names that nobody here knows; they change nothing.
    unknown_fields: SkipJsonSchema[tuple[str, ...]] = ()


_HONOURED = frozenset(ChatRequest.model_fields) - {"unknown_fields"}
# JSON's words where pydantic uses Python's.
_WORDINGS = {
    "model_type": "input should be an object",
    "tuple_type": "input should be a list",
    "too_short": "list should have at least {min_length} item(s), not {actual_length}",
    "too_long": "list should have at most {max_length} items, not {actual_length}",
    "dict_type": "input should be an object",
}
_KNOWN_INSIDE = HARMLESS_INSIDE.union(
    [f"messages[].{name}" for name in MESSAGE_FIELDS],
    [f"stream_options.{name}" for name in STREAM_FIELDS],
)
_KNOWN = _HONOURED | HARMLESS_FIELDS | frozenset(REQUEST_FIELDS)


def parse_request(body: bytes) -> ChatRequest:
    """Check a request body and keep what is honoured of it.

    Raises:
        BadRequest: the body is no JSON object, a field is missing, of the wrong type, out of
            range, or asks for something that is not supported.
        BodyTooLarge: the body has too many parts to be looked at.
    """
    return check_request(load_object(body))


def check_request(fields: Mapping[str, Any]) -> ChatRequest:
    """As `parse_request`, of a body that is loaded."""
    refuse_unsupported(fields, REQUEST_FIELDS)
    _refuse_in_messages(fields.get("messages"))
    options = fields.get("stream_options")
    if isinstance(options, dict):
        refuse_unsupported(options, STREAM_FIELDS, "stream_options.")
    honoured = {name: fields[name] for name in _HONOURED if fields.get(name) is not None}
    request = validate(ChatRequest, honoured)
    unknown = {name for name in fields.keys() - _KNOWN if fields[name] is not None}
    unknown |= {
        name
        for field in ("messages", "stream_options", "tools", "tool_choice", "response_format")
        for name in unknown_in(getattr(request, field), field)
        if name not in _KNOWN_INSIDE
    }
    return request.model_copy(update={"unknown_fields": tuple(sorted(unknown))})


def load_object(body: bytes) -> dict[str, Any]:
    """The JSON object that a body is, see `parse_request`."""
    num_marks = sum(map(body.count, _MARKS))
    if num_marks > MAX_BODY_MARKS:
        raise BodyTooLarge(
            f"the request body holds {num_marks} commas and opening brackets; "
            f"the limit is {MAX_BODY_MARKS}"
        )
    try:
        fields = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"the body is not valid JSON: {error}", code="invalid_json") from error
    if not isinstance(fields, dict):
        raise BadRequest("the body should be a JSON object", code="invalid_json")
    return fields


def validate(model: type[Body], fields: Mapping[str, Any]) -> Body:
    """Hold fields to a model; a wrong one is a `BadRequest` that names it."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _bad_request(error.errors(include_url=False)[0]) from error


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
