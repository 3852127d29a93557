"""Messages with calls become turns, and wishes for calls are granted or refused by name."""

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest

from config.settings import DEMO_MODEL, ImageSettings
from gateway.errors import BadRequest
from gateway.prompts.arguments import parse_arguments
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.prompt import Call, ImageSlot, Prompt, make_prompt
from gateway.prompts.template import compile_template
from gateway.prompts.tool_use import NO_TOOLS
from gateway.schemas.schema import parse_request
from tests.templates import QWEN_TOOLS
from workers.families.qwen_vl.answers import read_answer_form

DEMO = load_checkpoint(DEMO_MODEL)
CHECKPOINT = replace(
    DEMO, template=compile_template(QWEN_TOOLS, {}), answer_form=read_answer_form(QWEN_TOOLS)
)
TOOL = {"type": "function", "function": {"name": "look"}}
IMAGE = {"type": "image_url", "image_url": {"url": "http://h/0"}}


def prompt(checkpoint: Any = CHECKPOINT, **fields: Any) -> Prompt:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]} | fields
    return make_prompt(
        parse_request(orjson.dumps(body)),
        request_id="r",
        checkpoint=checkpoint,
        limits=ImageSettings(max_images=3),
        request_seconds=60.0,
        now=0.0,
    )


def call(arguments: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}


def test_a_chat_with_calls_becomes_turns() -> None:
    made = prompt(
        messages=[
            {"role": "user", "content": [IMAGE]},
            {"role": "assistant", "reasoning_content": "Hm.", "tool_calls": [call('{"a": 1}')]},
            {"role": "tool", "tool_call_id": "c1", "content": [IMAGE, IMAGE]},
            {"role": "tool", "tool_call_id": "c2", "content": []},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    user, asked, first, second, refusal = made.turns
    assert user.parts == (ImageSlot(0),)
    assert (asked.parts, asked.plain, asked.thoughts) == (("",), True, "Hm.")
    assert asked.calls == (Call("c1", "look", {"a": 1}),)
    assert (first.role, first.parts, first.call_id) == ("tool", (ImageSlot(1), ImageSlot(2)), "c1")
    assert (second.parts, second.plain, second.call_id) == (("",), True, "c2")
    assert refusal.parts == ("No.",)
    assert [image.param for image in made.images] == [
        "messages[0].content[0].image_url",
        "messages[2].content[0].image_url",
        "messages[2].content[1].image_url",
    ]


def test_images_of_results_count_towards_the_limit() -> None:
    result = {"role": "tool", "tool_call_id": "c", "content": [IMAGE, IMAGE]}
    with pytest.raises(BadRequest, match=r"4 images; the limit is 3"):
        prompt(messages=[{"role": "user", "content": [IMAGE] * 2}, result])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1.50, "b": [null]}', {"a": 1.5, "b": [None]}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        (" \n", {}),
        ({"a": "é"}, {"a": "é"}),
        ("{", "{"),
        ("[1]", "[1]"),
        ("null", "null"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[" * 100_000, "[" * 100_000),
        ('{"a": ' * 40 + "1" + "}" * 40, '{"a": ' * 40 + "1" + "}" * 40),
        ('{"a": ' + "9" * 5000 + "}", '{"a": ' + "9" * 5000 + "}"),
    ],
)
def test_arguments_are_an_object_or_stay_as_they_are(given: Any, expected: Any) -> None:
    assert parse_arguments(given) == expected


def test_an_object_that_is_too_deep_is_written_out() -> None:
    deep: Any = {}
    for _ in range(40):
        deep = {"é": deep}
    assert parse_arguments(deep) == json.dumps(deep, ensure_ascii=False)


def test_tools_are_carried_as_they_came() -> None:
    own = {"function": {"parameters": {"x": 1}, "name": "look"}, "type": "function"}
    use = prompt(tools=[own], parallel_tool_calls=False).tool_use
    assert list(use.tools[0]) == ["function", "type"]
    assert (use.choice, use.named, use.may_call, use.max_calls) == ("auto", None, True, 1)
    assert prompt(tools=[TOOL]).tool_use.max_calls is None


@pytest.mark.parametrize(
    "fields",
    [
        {}, {"tools": []}, {"tools": None, "tool_choice": None},
        {"tools": [], "tool_choice": "auto"}, {"tool_choice": "none"},
        {"tools": [TOOL], "tool_choice": "none"},
        {"parallel_tool_calls": False},
    ],
)  # fmt: skip
def test_where_none_may_be_called_none_are_shown(fields: dict[str, Any]) -> None:
    assert prompt(**fields).tool_use == NO_TOOLS
    assert prompt(DEMO, **fields).tool_use == NO_TOOLS


NAMED = {"type": "function", "function": {"name": "look"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_cannot_be_required_where_there_is_nothing_to_call(choice: Any) -> None:
    with pytest.raises(BadRequest, match="tools") as caught:
        prompt(tool_choice=choice)
    assert (caught.value.param, caught.value.code) == ("tool_choice", "invalid_value")


def test_a_choice_of_a_function_that_is_not_given_is_refused() -> None:
    choice = {"type": "function", "function": {"name": "fly"}}
    with pytest.raises(BadRequest, match="fly") as caught:
        prompt(tools=[TOOL], tool_choice=choice)
    assert (caught.value.param, caught.value.code) == ("tool_choice", "invalid_value")


def test_a_checkpoint_without_tools_refuses_them_with_advice() -> None:
    with pytest.raises(BadRequest, match=r"chat_template\.jinja") as caught:
        prompt(DEMO, tools=[TOOL])
    assert (caught.value.param, caught.value.code) == ("tools", "unsupported_parameter")
