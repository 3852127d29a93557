"""The route /openapi.json: what every route takes and tells, as an OpenAPI 3.1 document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gateway import errors
from gateway.edge.gate import OPEN_PATHS
from gateway.jobs.fence import ImageFenced, RequestFenced
from gateway.routes.replies import json_response
from gateway.schemas import answer_schema as told
from gateway.schemas.answer_schema import ErrorBody
from gateway.schemas.body_schema import Schema, request_bodies, schemas_of
from gateway.schemas.response_schema import ResponseBody, ResponseEvent
from gateway.services import Services

PATH = "/openapi.json"
Errors = tuple[type[errors.ServeError], ...]

# What may go wrong before a route is reached, on the way to its body, and in its work.
_ANYWHERE: Errors = (
    errors.ServeError,
    errors.MalformedRequest,
    errors.HeadTimeout,
    errors.IdleTimeout,
    errors.HeadTooLarge,
    errors.TooManyConnections,
)
_AT_THE_GATE: Errors = (errors.InvalidKey, errors.KeyNotAllowed)
_WITH_A_BODY: Errors = (
    errors.BadRequest,
    errors.PromptTooLong,
    errors.BodyTooLarge,
    errors.BodyTimeout,
    errors.UnknownModel,
    errors.Overloaded,
    errors.RateLimited,
    errors.DeadlinePassed,
    errors.NotReady,
)
_WITH_IMAGES: Errors = (errors.ImageRejected, errors.ImageTooLarge)
_IN_WORKERS: Errors = (
    errors.WorkerFailed,
    errors.WorkerLost,
    errors.OutOfMemory,
    RequestFenced,
    ImageFenced,
)


@dataclass(frozen=True, slots=True)
class Operation:
    """One route: what it is, what it takes, tells and may fail with."""

    method: str
    path: str
    summary: str
    answer: type[BaseModel] | str  # a class, or the media type of a text
    body: str = ""  # the name of its schema
    event: type[BaseModel] | None = None  # the data of one event, where it can be streamed
    failures: Errors = ()
    also: Mapping[int, type[BaseModel]] = field(default_factory=dict)  # answers of other statuses
    example: Mapping[str, Any] = field(default_factory=dict)  # of a body, but for its model


_ASKING = _WITH_A_BODY + _WITH_IMAGES + _IN_WORKERS
_QUESTION = "What shape is this?"
# One red pixel.
_PICTURE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMB"
    "AQD3A0FDAAAAAElFTkSuQmCC"
)
_CHAT_PARTS = [
    {"type": "image_url", "image_url": {"url": _PICTURE}},
    {"type": "text", "text": _QUESTION},
]
_INPUT_PARTS = [
    {"type": "input_image", "image_url": _PICTURE},
    {"type": "input_text", "text": _QUESTION},
]
_MESSAGES = {"messages": [{"role": "user", "content": _CHAT_PARTS}]}

OPERATIONS: Sequence[Operation] = (
    Operation(
        "post",
        "/v1/chat/completions",
        "An answer to a conversation with images",
        told.ChatCompletion,
        body="ChatBody",
        event=told.ChatChunk,
        failures=_ASKING,
        example=_MESSAGES | {"max_tokens": 16},
    ),
    Operation(
        "post",
        "/v1/responses",
        "The same in the newer form; nothing is kept",
        ResponseBody,
        body="ResponseInput",
        event=ResponseEvent,
        failures=_ASKING,
        example={
            "input": [{"role": "user", "content": _INPUT_PARTS}],
            "max_output_tokens": 16,
        },
    ),
    Operation(
        "post",
        "/v1/completions",
        "What the model makes of a text or of token ids",
        told.TextCompletion,
        body="CompletionBody",
        event=told.TextCompletion,
        failures=_WITH_A_BODY + _IN_WORKERS,
        example={"prompt": "A red", "max_tokens": 16},
    ),
    Operation(
        "post",
        "/tokenize",
        "What a conversation or a text counts; no worker is asked",
        told.Counted,
        body="CountBody",
        failures=_WITH_A_BODY + _WITH_IMAGES,
        example=_MESSAGES,
    ),
    Operation(
        "post",
        "/detokenize",
        "What token ids say",
        told.Spelt,
        body="SpellBody",
        failures=_WITH_A_BODY,
        example={"tokens": [1, 2, 3]},
    ),
    Operation("get", "/v1/models", "The model that is served", told.ModelList),
    Operation(
        "get",
        "/v1/models/{name}",
        "The model by its name",
        told.ModelCard,
        failures=(errors.UnknownModel,),
    ),
    Operation("get", "/health", "Whether the process lives", told.Health),
    Operation(
        "get",
        "/ready",
        "Whether each role has a worker that takes jobs",
        told.Readiness,
        also={503: told.Readiness},
    ),
    Operation("get", "/metrics", "Counters in Prometheus' form", "text/plain"),
    Operation("get", PATH, "This document", "application/json"),
)


class Publication:
    """The document of one gateway."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def show(self, request: Request) -> Response:
        """The document; whoever may ask a route may read it."""
        return json_response(self._document)

    @cached_property
    def _document(self) -> dict[str, Any]:
        return document(self._services.served_model_name, self._services.keys is not None)


def document(model: str, is_guarded: bool) -> dict[str, Any]:
    """The document of a gateway that serves `model`, to whoever has a key if it is guarded."""
    paths: dict[str, Any] = {}
    for each in OPERATIONS:
        paths.setdefault(each.path, {})[each.method] = _operation(each, model, is_guarded)
    components: dict[str, Any] = {"schemas": _schemas(model)}
    if is_guarded:
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Fovea", "version": "1"},
        "paths": paths,
        "components": components,
    }


def _schemas(model: str) -> dict[str, Schema]:
    named = (each for operation in OPERATIONS for each in (operation.answer, operation.event))
    classes = {each: None for each in (ErrorBody, *named) if isinstance(each, type)}
    return request_bodies(model) | schemas_of(classes)


def _operation(operation: Operation, model: str, is_guarded: bool) -> dict[str, Any]:
    asks_key = is_guarded and operation.path not in OPEN_PATHS
    failures = _ANYWHERE + operation.failures + (_AT_THE_GATE if asks_key else ())
    made: dict[str, Any] = {
        "summary": operation.summary,
        "responses": _failures(failures) | _answers(operation),
    }
    if operation.body:
        content = {"schema": _named(operation.body)}
        content["example"] = {"model": model, **operation.example}
        made["requestBody"] = {"required": True, "content": {"application/json": content}}
    if "{name}" in operation.path:
        given = {"name": "name", "in": "path", "required": True, "example": model}
        made["parameters"] = [given | {"schema": {"type": "string", "minLength": 1}}]
    if asks_key:
        made["security"] = [{"key": []}]
    return made


def _answers(operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if isinstance(operation.answer, str):
        kind = "object" if operation.answer == "application/json" else "string"
        content[operation.answer] = {"schema": {"type": kind}}
    else:
        content["application/json"] = {"schema": _named(operation.answer.__name__)}
    if operation.event is not None:
        content["text/event-stream"] = {"schema": _event(operation.event)}
    found = {"200": {"description": operation.summary, "content": content}}
    for status, answer in operation.also.items():
        schema = {"anyOf": [_named(answer.__name__), _named(ErrorBody.__name__)]}
        words = {"description": "the answer is no"}
        found[str(status)] = words | {"content": {"application/json": {"schema": schema}}}
    return found


def _event(event: type[BaseModel]) -> Schema:
    """One event; a stream may fail on its way, and some end with a mark."""
    told = {"anyOf": [_named(event.__name__), _named(ErrorBody.__name__)]}
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": told}
    fields = {"event": {"type": "string"}, "data": {"anyOf": [{"const": "[DONE]"}, data]}}
    return {"type": "object", "properties": fields, "required": ["data"]}


def _failures(failures: Errors) -> dict[str, Any]:
    """The error body for each status, with what it may mean."""
    meanings: dict[int, list[str]] = {}
    for each in failures:
        meanings.setdefault(each.status, []).append((each.__doc__ or "").partition("\n")[0])
    content = {"application/json": {"schema": _named(ErrorBody.__name__)}}
    return {
        str(status): {"description": " ".join(words), "content": content}
        for status, words in sorted(meanings.items())
    }


def _named(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}
