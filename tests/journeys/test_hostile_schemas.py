"""Schemas that once ended the gateway: refused, while it goes on serving."""

import os
from typing import Any

import pytest

from tests.gateway.structured.test_checker import ALLOCATES, FINE, OVERFLOWS
from tests.journeys.server import Server

pytestmark = pytest.mark.slow


def ask(server: Server, schema: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
    words = [{"role": "user", "content": "What shapes do you know?"}]
    body = {"model": server.model, "messages": words, "max_tokens": 3, "response_format": form}
    answer = server.post(body)
    return answer.status_code, answer.json()


@pytest.mark.parametrize("schema", [OVERFLOWS, ALLOCATES])
def test_a_schema_that_ends_its_reader_is_the_callers_mistake(
    demo: Server, schema: dict[str, Any]
) -> None:
    status, body = ask(demo, schema)
    assert (status, body["error"]["code"]) == (400, "invalid_schema")
    assert body["error"]["param"] == "response_format.json_schema.schema"
    os.kill(demo.process.pid, 0)
    assert ask(demo, FINE)[0] == 200
