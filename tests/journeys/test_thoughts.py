"""Thoughts, and chats that go on with the results of calls, from models that recite."""

from typing import Any

import pytest

from tests.journeys.pupils import (
    ARGUMENTS,
    TEXTS,
    THINKING_TEXTS,
    THOUGHT,
    TWO_CALLS,
    Messages,
    Pupil,
    called,
)
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow


def test_a_thought_is_told_apart_and_counted(thinker: Pupil) -> None:
    answer = thinker.ask("think")
    message = answer.choices[0].message
    assert message.model_dump()["reasoning_content"] == THOUGHT
    assert message.content == "I look."
    assert called(answer) == [("look", ARGUMENTS)]
    *chunks, last = thinker.stream("think")
    deltas = [chunk.choices[0].delta.model_dump() for chunk in chunks]
    thoughts = [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta]
    assert "".join(thoughts) == THOUGHT
    assert len(thoughts) > 5
    assert "".join(delta["content"] or "" for delta in deltas) == "I look."
    num_tokens = thinker.reciter.words["think"].index("</think>") + 1
    for usage in (answer.usage, last.usage):
        assert usage.completion_tokens == thinker.reciter.num_tokens("think")
        assert usage.completion_tokens_details.reasoning_tokens == num_tokens


def test_a_thought_that_is_cut_is_all_there_is(thinker: Pupil) -> None:
    answer = thinker.ask("long", max_tokens=5)
    message = answer.choices[0].message
    assert THINKING_TEXTS["long"].startswith(message.model_dump()["reasoning_content"])
    assert (message.content, answer.choices[0].finish_reason) == (None, "length")
    assert answer.usage.completion_tokens_details.reasoning_tokens == 5


def test_a_stop_string_does_not_end_a_thought(thinker: Pupil) -> None:
    answer = thinker.ask("think", stop=["I"])
    message = answer.choices[0].message
    assert message.model_dump()["reasoning_content"] == THOUGHT
    assert message.content is None
    assert answer.choices[0].finish_reason == "stop"


def test_a_section_of_calls_is_parsed_with_the_models_ids(kimi: Pupil) -> None:
    for answer in (kimi.ask("one"), gather(kimi, "one")):
        message = answer.choices[0].message
        assert message.model_dump()["reasoning_content"] == "Hm."
        assert message.content == "I look."
        assert called(answer) == TWO_CALLS
        assert [each.id for each in message.tool_calls] == ["functions.look:0", "functions.see:1"]
        assert answer.choices[0].finish_reason == "tool_calls"


def gather(one: Pupil, text: str) -> Any:
    with one.server.client.chat.completions.stream(**one.fields(text)) as stream:
        return stream.get_final_completion()


def test_a_section_may_end_the_thought(kimi: Pupil) -> None:
    answer = kimi.ask("two")
    assert answer.choices[0].message.model_dump()["reasoning_content"] == "Straight to it"
    assert called(answer) == [("look", "[]")]


def test_a_conversation_with_results_goes_on(kimi: Pupil, qwen: Pupil, thinker: Pupil) -> None:
    for one, text in ((kimi, "one"), (qwen, "two"), (thinker, "think")):
        messages: Messages = [{"role": "user", "content": "Look, please."}]
        first = one.ask(text, messages).choices[0].message
        messages.append(first.model_dump())
        for each in first.tool_calls:
            messages.append({"role": "tool", "tool_call_id": each.id, "content": "Found."})
        second = one.ask(text, messages)
        assert second.choices[0].message.content == "I look."
        assert second.usage.prompt_tokens > 40


def image_tokens(answer: Any) -> int:
    count: int = answer.usage.prompt_tokens_details.model_dump()["image_tokens"]
    return count


def test_images_in_results_are_images(qwen: Pupil, kimi: Pupil) -> None:
    for one, text in ((qwen, "two"), (kimi, "one")):
        sizes = [(160, 128), (64, 96)]
        pictures = [image_part(draw_shape("red", "circle", size)) for size in sizes]
        messages: Messages = [
            {"role": "user", "content": [pictures[0], text_part("What is on the screen?")]},
            {"role": "assistant", "content": None, "tool_calls": [old_call("functions.look:0")]},
            {
                "role": "tool",
                "tool_call_id": "functions.look:0",
                "content": [text_part("A picture:"), pictures[1]],
            },
        ]
        both = image_tokens(one.ask(text, messages))
        alone = [[{"role": "user", "content": [picture]}] for picture in pictures]
        assert both == sum(image_tokens(one.ask(text, each)) for each in alone)
        whole = one.ask(text, messages)
        assert called(whole) == TWO_CALLS
        assert whole.usage.prompt_tokens < 400


def old_call(call_id: str, arguments: str = ARGUMENTS) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return {"id": call_id, "type": "function", "function": function}


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"x"', '{"a": NaN}', "<|im_end|>"])
def test_arguments_that_are_no_object_are_shown_as_they_are(qwen: Pupil, arguments: str) -> None:
    messages: Messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [old_call("x", arguments)]},
        {"role": "tool", "tool_call_id": "x", "content": []},
    ]
    assert qwen.ask("plain", messages).choices[0].message.content == TEXTS["plain"]
