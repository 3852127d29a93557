"""Calls that are tags, through HTTP and the official client, from a model that recites them."""

import json
from typing import Any

import jsonschema
import pytest

from tests.journeys.pupils import TWO_XML_CALLS, Pupil, called
from tests.schemas import AGE, COLOUR, WORD, record

pytestmark = pytest.mark.slow

PARAMETERS = {"where": {"type": "string"}, "far": AGE, "now": {"type": "boolean"}}
LOOK = {
    "type": "function",
    "function": {"name": "look", "parameters": record(required=False, **PARAMETERS)},
}
CHOOSE = {
    "type": "function",
    "function": {"name": "choose", "parameters": record(colour=COLOUR, word=WORD, age=AGE)},
}


def test_tags_become_typed_arguments_whole_and_streamed(coder: Pupil) -> None:
    answer = coder.ask("two", tools=[LOOK])
    assert called(answer) == TWO_XML_CALLS
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == (
        "I look.",
        "tool_calls",
    )
    *chunks, _ = coder.stream("two", tools=[LOOK])
    pieces = [piece for chunk in chunks for piece in chunk.choices[0].delta.tool_calls or ()]
    joined = ["".join(p.function.arguments for p in pieces if p.index == at) for at in (0, 1)]
    assert joined == [arguments for _, arguments in TWO_XML_CALLS]
    assert len([piece for piece in pieces if piece.index == 0]) > 6
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "I look."


def test_one_call_is_the_last_where_calls_may_not_be_parallel(coder: Pupil) -> None:
    answer = coder.ask("two", tools=[LOOK], parallel_tool_calls=False)
    assert called(answer) == TWO_XML_CALLS[:1]
    assert answer.usage.completion_tokens < coder.reciter.num_tokens("two")


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "choose"}}]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_call_that_must_come_fits_its_function(coder: Pupil, choice: Any, seed: int) -> None:
    wishes: dict[str, Any] = {"temperature": 1, "seed": seed, "max_tokens": 400}
    wishes |= {"tool_choice": choice, "parallel_tool_calls": False}  # one call, so that it ends
    answer = coder.ask("two", tools=[CHOOSE], **wishes)
    assert answer.choices[0].message.content is None
    assert answer.choices[0].finish_reason == "tool_calls"
    for name, arguments in called(answer):
        assert name == "choose"
        jsonschema.validate(json.loads(arguments), CHOOSE["function"]["parameters"])  # type: ignore[index]


def test_the_calls_go_back_into_the_template(coder: Pupil) -> None:
    answer = coder.ask("two", tools=[LOOK])
    said = answer.choices[0].message.model_dump(exclude_none=True)
    results = [
        {"role": "tool", "tool_call_id": call["id"], "content": "5"} for call in said["tool_calls"]
    ]
    messages = [{"role": "user", "content": "Go on."}, said, *results]
    again = coder.ask("two", messages, tools=[LOOK])
    assert called(again) == TWO_XML_CALLS
    assert again.usage.prompt_tokens > answer.usage.prompt_tokens + answer.usage.completion_tokens
