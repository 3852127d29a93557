"""Responses that think and call functions, held to what chat tells of the same answer."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from tests.journeys.server import Server, running
from tests.pictures import data_uri, image_part, noise
from tests.reciting import Reciter, make_reciter
from tests.templates import QWEN_THINKING

pytestmark = pytest.mark.slow

THOUGHT = "Where is it?\n\nIn Zürich, I think."
ARGUMENTS = '{"where": "Zürich 日本 🦊"}'


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


TEXTS = {
    "calls": f"{THOUGHT}\n</think>\n\nI look.\n{call('look', ARGUMENTS)}",
    "long": "It goes on and on and never comes to an end",
}
PARAMETERS = {"type": "object", "properties": {"where": {"type": "string"}}}
LOOK = {"name": "look", "description": "Look somewhere.", "parameters": PARAMETERS}
MARKERS = ("<think>", "</think>", "<tool_call>", "</tool_call>")


class Pupil:
    """A server whose model recites, asked on both routes."""

    def __init__(self, server: Server, reciter: Reciter) -> None:
        self.server, self._reciter = server, reciter

    def chat(self, text: str, messages: list[dict[str, Any]], **more: Any) -> Any:
        create = self.server.client.chat.completions.create
        tools = [{"type": "function", "function": LOOK}]
        wishes = {"model": self.server.model, "messages": messages, "tools": tools}
        return create(**wishes, **self._reciter.say(text), **more)

    def fields(self, text: str, given: Any, **more: Any) -> dict[str, Any]:
        say = self._reciter.say(text)
        bias = {"logit_bias": say.pop("logit_bias")}
        tools = [{"type": "function", "strict": None, **LOOK}]
        wishes = {"model": self.server.model, "input": given, "tools": tools}
        return {**wishes, **say, "extra_body": bias, **more}

    def respond(self, text: str, given: Any, **more: Any) -> Any:
        return self.server.client.responses.create(**self.fields(text, given, **more))


@pytest.fixture(scope="module")
def pupil(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    folder = tmp_path_factory.mktemp("thinker")
    reciter = make_reciter(folder, "qwen3_vl", TEXTS, template=QWEN_THINKING, tokens=MARKERS)
    with running(model=reciter.path) as server:
        yield Pupil(server, reciter)


ASKED = [{"role": "user", "content": "Go on."}]


def test_thoughts_words_and_calls_are_items_of_their_own(pupil: Pupil) -> None:
    answer = pupil.chat("calls", ASKED)
    message = answer.choices[0].message
    response = pupil.respond("calls", "Go on.")
    thought, words, called = response.output
    assert (thought.type, words.type, called.type) == ("reasoning", "message", "function_call")
    assert thought.content[0].text == message.reasoning_content == THOUGHT
    assert response.output_text == message.content == "I look."
    assert (called.name, called.arguments) == ("look", ARGUMENTS)
    assert called.call_id.startswith("call_")
    assert {item.status for item in response.output} == {"completed"}
    usage, counted = response.usage, answer.usage
    assert usage.input_tokens == counted.prompt_tokens
    assert usage.output_tokens == counted.completion_tokens
    told = usage.output_tokens_details.reasoning_tokens
    assert told == counted.completion_tokens_details.reasoning_tokens > 0
    assert response.tools[0].name == "look"


def kinds_of(events: list[Any]) -> list[str]:
    """The kinds of a stream's events, with deltas in a row told once."""
    kinds = [event.type.removeprefix("response.") for event in events]
    return [kind for at, kind in enumerate(kinds) if at == 0 or kinds[at - 1] != kind]


def test_the_stream_tells_each_item_whole_before_the_next(pupil: Pupil) -> None:
    whole = pupil.respond("calls", "Go on.")
    events = list(pupil.respond("calls", "Go on.", stream=True))
    parts = ["content_part.done", "output_item.done", "output_item.added"]
    assert kinds_of(events) == [
        "created", "in_progress", "output_item.added",
        "content_part.added", "reasoning_text.delta", "reasoning_text.done", *parts,
        "content_part.added", "output_text.delta", "output_text.done", *parts,
        "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == list(range(len(events)))
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert [item.type for item in done] == [item.type for item in whole.output]
    assert events[-1].response.output == done
    pieces = [e.delta for e in events if e.type == "response.function_call_arguments.delta"]
    assert "".join(pieces) == ARGUMENTS
    assert len(pieces) > 3


def test_the_clients_helper_puts_a_call_together(pupil: Pupil) -> None:
    fields = pupil.fields("calls", "Go on.")
    with pupil.server.client.responses.stream(**fields) as stream:
        snapshots = [
            event.snapshot
            for event in stream
            if event.type == "response.function_call_arguments.delta"
        ]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output[-1].arguments == ARGUMENTS


def test_a_call_and_its_result_with_an_image_go_back_as_in_chat(pupil: Pupil) -> None:
    first = pupil.respond("calls", ASKED)
    image = noise(3, (101, 67))
    call_id = first.output[-1].call_id
    result = {
        "type": "function_call_output",
        "call_id": call_id,
        "output": [
            {"type": "input_text", "text": "Here:"},
            {"type": "input_image", "image_url": data_uri(image), "detail": "auto"},
        ],
    }
    given = [*ASKED, *(item.model_dump() for item in first.output), result]
    response = pupil.respond("long", given, max_output_tokens=3)
    function = {"name": "look", "arguments": ARGUMENTS}
    messages: list[dict[str, Any]] = [
        *ASKED,
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "I look."}],
            "reasoning_content": THOUGHT,
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {
            "role": "tool",
            "tool_call_id": call_id,
            "content": [{"type": "text", "text": "Here:"}, image_part(image)],
        },
    ]
    answer = pupil.chat("long", messages, max_tokens=3)
    assert response.usage.input_tokens == answer.usage.prompt_tokens
    image_tokens = answer.usage.prompt_tokens_details.model_dump()["image_tokens"]
    assert response.usage.input_tokens_details.model_dump()["image_tokens"] == image_tokens > 0
    assert response.status == "incomplete"
    assert [item.status for item in response.output] == ["incomplete"]
    body = {"messages": messages, "tools": [{"type": "function", "function": LOOK}]}
    counted = httpx.post(f"{pupil.server.url}/tokenize", json=body).json()
    assert counted["count"] == answer.usage.prompt_tokens


def test_likelihoods_belong_to_the_words(pupil: Pupil) -> None:
    include = ["message.output_text.logprobs"]
    response = pupil.respond("calls", "Go on.", include=include)
    (part,) = response.output[1].content
    answer = pupil.chat("calls", ASKED, logprobs=True)
    expected = answer.choices[0].logprobs.content
    assert [entry.token for entry in part.logprobs] == [entry.token for entry in expected] != []
    events = list(pupil.respond("calls", "Go on.", include=include, stream=True))
    done = [event for event in events if event.type == "response.output_text.done"]
    assert [entry.token for entry in done[0].logprobs] == [entry.token for entry in part.logprobs]


def test_raw_completions_are_told_as_they_are(pupil: Pupil) -> None:
    say = pupil.fields("calls", "")["extra_body"]
    create = pupil.server.client.completions.create
    prompt = "<|im_start|>assistant\n"
    answer = create(
        model=pupil.server.model, prompt=prompt, max_tokens=200, temperature=0, extra_body=say
    )
    assert answer.choices[0].text == TEXTS["calls"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
    ({"tools": [{"type": "function"}]}, "tools[0].name"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name"),
    ({"tool_choice": {"type": "function", "name": "b"}}, "tool_choice"),
    ({"tool_choice": "always"}, "tool_choice"),
    ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]},
     "input[0].output"),
    ({"input": [{"type": "reasoning", "content": 5}]}, "input[0].content"),
    ({"text": {"format": {"type": "smell"}}}, "text.format.type"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[str(f)[:60] for f, _ in WRONG])
def test_what_is_wrong_is_named_as_the_body_has_it(
    pupil: Pupil, fields: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        pupil.server.client.responses.create(model=pupil.server.model, input="x", extra_body=fields)
    assert caught.value.param == param


def test_a_schema_is_kept(pupil: Pupil) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"type": "json_schema", "name": "s", "schema": schema | {"additionalProperties": False}}
    response = pupil.server.client.responses.create(
        model=pupil.server.model, input="x", text={"format": form}, max_output_tokens=60
    )
    assert response.text.format.to_dict() == form
    assert response.status in ("completed", "incomplete")
