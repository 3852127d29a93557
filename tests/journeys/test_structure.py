"""Answers of a form that was asked for, by a model without sense, through the official client."""

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from tests.checkpoints import make_checkpoint
from tests.journeys.server import Server, running
from tests.pictures import image_part, noise, text_part
from tests.schemas import AGE, SCHEMAS, WORD, Schema, record
from workers.families.kimi_k25 import markers

pytestmark = pytest.mark.slow

HELLO = [{"role": "user", "content": "hello"}]
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": "add", "parameters": record(a=AGE, b=AGE)}},
    {"type": "function", "function": {"name": "greet", "parameters": record(name=WORD)}},
]
PARAMETERS = {each["function"]["name"]: each["function"]["parameters"] for each in TOOLS}
# By model type, what tells in a template how the model calls functions.
MARKERS = {"qwen2_5_vl": "<tool_call>", "kimi_k25": markers.CALLS_BEGIN}


@pytest.fixture(scope="module", params=MARKERS)
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    folder = make_checkpoint(tmp_path_factory.mktemp("model"), request.param)
    template = folder / "chat_template.jinja"
    tools = f"{{% if tools %}}{MARKERS[request.param]}{{{{ tools | tojson }}}}{{% endif %}}"
    # Without thoughts: a model without sense would never come to their end.
    source = re.sub(r"{{ '<think>.*?}}", "", template.read_text(encoding="utf-8"))
    template.write_text(tools + source, encoding="utf-8")
    with running(model=folder) as server:
        yield server


def form_of(schema: Schema) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}


def ask(server: Server, **fields: Any) -> Any:
    defaults = {"model": server.model, "messages": HELLO, "max_tokens": 500, "temperature": 1.0}
    return server.client.chat.completions.create(**defaults | {"seed": 1} | fields)


def whole_answer(server: Server, name: str) -> tuple[str, str]:
    """Text and finish reason of an answer that follows a schema."""
    choice = ask(server, response_format=form_of(SCHEMAS[name])).choices[0]
    return choice.message.content, choice.finish_reason


def streamed(server: Server, name: str) -> tuple[str, str]:
    """The same, put together from a stream."""
    text, reason = "", ""
    for chunk in ask(server, stream=True, response_format=form_of(SCHEMAS[name])):
        text += chunk.choices[0].delta.content or ""
        reason = chunk.choices[0].finish_reason or reason
    return text, reason


def test_answers_are_json_of_their_schemas_and_leave_free_ones_what_they_are(
    server: Server,
) -> None:
    free = [
        {"messages": [{"role": "user", "content": f"story {number}"}]}
        | {"temperature": 0.0, "max_tokens": 40}
        for number in range(3)
    ]
    alone = [ask(server, **fields).choices[0].message.content for fields in free]
    with ThreadPoolExecutor(16) as threads:
        whole = {name: threads.submit(whole_answer, server, name) for name in SCHEMAS}
        among = [threads.submit(ask, server, **fields) for fields in free]
        parts = {name: threads.submit(streamed, server, name) for name in SCHEMAS}
    assert [each.result().choices[0].message.content for each in among] == alone
    for name, schema in SCHEMAS.items():
        text, reason = whole[name].result()
        jsonschema.validate(json.loads(text), schema)
        assert reason == "stop"
        assert parts[name].result() == (text, reason)


class Animal(BaseModel):
    kind: Literal["cat", "dog"]
    lives: int = Field(ge=0, le=9)


class Zoo(BaseModel):
    name: str = Field(max_length=10)
    animals: list[Animal] = Field(min_length=1, max_length=3)


def test_the_official_client_parses_answers_into_its_callers_types(server: Server) -> None:
    answer = server.client.chat.completions.parse(
        model=server.model,
        messages=HELLO,
        response_format=Zoo,
        temperature=1.0,
        seed=4,
    )
    zoo = answer.choices[0].message.parsed
    assert isinstance(zoo, Zoo)
    assert 1 <= len(zoo.animals) <= 3


def test_several_choices_with_an_image_each_have_the_form(server: Server) -> None:
    messages = [{"role": "user", "content": [image_part(noise(7, (84, 57))), text_part("What?")]}]
    form = form_of(SCHEMAS["list of records"])
    choices = ask(server, messages=messages, n=3, response_format=form).choices
    assert len({choice.message.content for choice in choices}) > 1
    for choice in choices:
        jsonschema.validate(json.loads(choice.message.content), SCHEMAS["list of records"])


def test_json_mode_gives_an_object(server: Server) -> None:
    choice = ask(server, response_format={"type": "json_object"}, max_tokens=300).choices[0]
    assert choice.message.content.startswith("{")
    if choice.finish_reason == "stop":  # a random string may go on for ever
        assert isinstance(json.loads(choice.message.content), dict)


def test_what_is_cut_by_max_tokens_says_so(server: Server) -> None:
    choice = ask(server, response_format=form_of(SCHEMAS["nested"]), max_tokens=3).choices[0]
    assert choice.finish_reason == "length"


def test_calls_that_are_required_come_and_fit_their_functions(server: Server) -> None:
    for choice, names in (
        ("required", set(PARAMETERS)),
        ({"type": "function", "function": {"name": "greet"}}, {"greet"}),
    ):
        answer = ask(server, tools=TOOLS, tool_choice=choice).choices[0]
        assert answer.finish_reason == "tool_calls"
        assert answer.message.content is None
        assert answer.message.tool_calls
        for call in answer.message.tool_calls:
            assert call.function.name in names
            jsonschema.validate(json.loads(call.function.arguments), PARAMETERS[call.function.name])


def test_one_call_where_none_may_come_beside_it(server: Server) -> None:
    for seed in range(4):
        answer = ask(
            server, tools=TOOLS, tool_choice="required", parallel_tool_calls=False, seed=seed
        )
        assert len(answer.choices[0].message.tool_calls) == 1
