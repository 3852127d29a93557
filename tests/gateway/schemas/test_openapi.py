"""The published document is in step with routes, errors and schemas."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import jsonschema
import pytest
from starlette.routing import Route

from gateway import errors
from gateway.api import routes
from gateway.edge.head_errors import HeadError
from gateway.schemas.openapi import OPERATIONS, Operation, document
from gateway.services import Services

MODEL = "demo/model"
# Of paths and methods that the document does not have.
NO_OPERATION = {errors.UnknownRoute, errors.WrongMethod}
# Never raised themselves.
ROOTS = {errors.CallerError, HeadError, errors.BusyError, errors.WorkerError}
WITH_BODIES = [each for each in OPERATIONS if each.body]


def published(*, is_guarded: bool = False) -> dict[str, Any]:
    return document(MODEL, is_guarded)


def refs(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from refs(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from refs(inner)


def subclasses(root: type[errors.ServeError]) -> Iterator[type[errors.ServeError]]:
    for each in root.__subclasses__():
        yield each
        yield from subclasses(each)


def body_schema(path: str) -> dict[str, Any]:
    whole = published()
    content = whole["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    return {**content["schema"], "components": whole["components"]}


def test_it_has_every_route_and_no_other() -> None:
    services = cast("Services", SimpleNamespace())
    served = {
        (route.path.replace(":path", ""), method.lower())
        for route in routes(services)
        if isinstance(route, Route)
        for method in (route.methods or ())
        if method != "HEAD"
    }
    told = {(path, method) for path, each in published()["paths"].items() for method in each}
    assert told == served


def test_every_error_is_told_by_its_status() -> None:
    chat = published(is_guarded=True)["paths"]["/v1/chat/completions"]["post"]["responses"]
    raised = set(subclasses(errors.ServeError)) - NO_OPERATION
    assert {str(error.status) for error in raised} | {"200", "500"} == chat.keys()
    for status, response in chat.items():
        meanings = [each.__doc__ for each in raised - ROOTS if str(each.status) == status]
        for meaning in meanings:
            assert meaning is not None
            assert meaning.partition("\n")[0] in response["description"]


def test_what_is_referred_to_is_there_and_valid() -> None:
    whole = published()
    schemas = whole["components"]["schemas"]
    names = {ref.removeprefix("#/components/schemas/") for ref in refs(whole)}
    assert names <= schemas.keys()
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


def test_keys_are_asked_for_where_they_guard() -> None:
    guarded, free = published(is_guarded=True), published()
    asking = {path for path, each in guarded["paths"].items() if "security" in str(each)}
    assert guarded["paths"].keys() - asking == {"/health", "/ready"}
    assert "security" not in str(free)


@pytest.mark.parametrize("operation", WITH_BODIES, ids=lambda each: each.path)
def test_examples_are_of_their_schema(operation: Operation) -> None:
    content = published()["paths"][operation.path]["post"]["requestBody"]["content"]
    example = content["application/json"]["example"]
    jsonschema.validate(example, body_schema(operation.path))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(example | {"model": "another"}, body_schema(operation.path))
