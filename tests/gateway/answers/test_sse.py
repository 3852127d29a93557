"""Frames and bodies are what the official client parses."""

import json
from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gateway.answers.deltas import Argued, Called, Delta, Said, Thought
from gateway.answers.sse import DONE, Choice, Frames, Usage, frame
from gateway.errors import WorkerLost, error_body

USAGE = Usage(prompt_tokens=120, completion_tokens=7, image_tokens=100, cached_tokens=64)


@pytest.fixture
def frames() -> Frames:
    return Frames("abc", "a-model")


def parse(data: bytes) -> list[Any]:
    """The values of a stream's frames, `[DONE]` as it is."""
    *parts, rest = data.split(b"\n\n")
    assert rest == b""
    assert all(part.startswith(b"data: ") and b"\n" not in part for part in parts)
    texts = [part.removeprefix(b"data: ") for part in parts]
    return [text.decode() if text == b"[DONE]" else json.loads(text) for text in texts]


def chunks(data: bytes) -> list[ChatCompletionChunk]:
    return [ChatCompletionChunk.model_validate(value, strict=True) for value in parse(data)]


def test_a_stream_is_what_the_official_client_reads(frames: Frames) -> None:
    stream = b"".join(
        (
            frames.role(0),
            frames.deltas(0, [Said("Hé")]),
            frames.deltas(0, [Said("llo\n\n")]),
            frames.finish(0, "stop"),
        )
    )
    role, *texts, finish = chunks(stream)
    assert role.choices[0].delta.role == "assistant"
    assert [chunk.choices[0].delta.content for chunk in texts] == ["Hé", "llo\n\n"]
    assert [chunk.choices[0].finish_reason for chunk in (role, *texts)] == [None] * 3
    assert finish.choices[0].finish_reason == "stop"
    assert finish.choices[0].delta.content is None


def test_all_chunks_carry_the_same_head(frames: Frames) -> None:
    stream = chunks(frames.role(0) + frames.deltas(0, [Said("a")]) + frames.finish(0, "length"))
    heads = {(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in stream}
    assert len(heads) == 1
    assert stream[0].id == "chatcmpl-abc"
    assert stream[0].model == "a-model"


def test_the_usage_chunk_has_no_choices(frames: Frames) -> None:
    (chunk,) = chunks(frames.usage(USAGE))
    assert chunk.choices == []
    assert chunk.usage is not None
    assert chunk.usage.total_tokens == 127


def test_no_delta_makes_no_frame(frames: Frames) -> None:
    assert frames.deltas(0, []) == b""


def test_a_whole_answer_is_what_the_official_client_reads(frames: Frames) -> None:
    answer = ChatCompletion.model_validate(
        frames.completion([Choice([Said("Hello")], "stop", None)], USAGE), strict=True
    )
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (120, 7)
    details = answer.usage.prompt_tokens_details
    assert details is not None
    assert details.model_dump(exclude_none=True) == {"cached_tokens": 64, "image_tokens": 100}


ENTRIES = [
    {
        "token": "\ufffd",
        "logprob": -0.5,
        "bytes": [0xE2, 0x82],
        "top_logprobs": [{"token": "<|im_end|>", "logprob": -9999.0, "bytes": None}],
    },
    {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": []},
]


def test_choices_and_logprobs_are_what_the_official_client_reads(frames: Frames) -> None:
    choices = [
        Choice([Said("O"), Said("ne")], "stop", ENTRIES),
        Choice([Said("Two")], "length", []),
    ]
    answer = ChatCompletion.model_validate(frames.completion(choices, USAGE), strict=True)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert [choice.message.content for choice in answer.choices] == ["One", "Two"]
    told = [choice.logprobs for choice in answer.choices]
    assert [each and each.model_dump() for each in told] == [
        {"content": ENTRIES, "refusal": None},
        {"content": [], "refusal": None},
    ]


def test_a_chunk_carries_its_choice_and_logprobs(frames: Frames) -> None:
    (chunk,) = chunks(frames.deltas(3, [Said("x")], ENTRIES))
    (choice,) = chunk.choices
    assert (choice.index, choice.delta.content) == (3, "x")
    assert choice.logprobs is not None
    assert choice.logprobs.model_dump() == {"content": ENTRIES, "refusal": None}
    (finish,) = chunks(frames.finish(2, "stop"))
    assert (finish.choices[0].index, finish.choices[0].logprobs) == (2, None)


DELTAS: list[Delta] = [
    Thought("I think"),
    Said("See: "),
    Called(0, "call_1", "look"),
    Argued(0, '{"at": '),
    Called(1, "call_2", "look"),
    Argued(1, "{}"),
    Argued(0, "1}"),
    Said("Done."),
]


def test_thoughts_and_calls_are_what_the_official_client_reads(frames: Frames) -> None:
    body = frames.completion([Choice(DELTAS, "tool_calls", None)], USAGE)
    (choice,) = ChatCompletion.model_validate(body, strict=True).choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "See: Done."
    assert choice.message.model_dump()["reasoning_content"] == "I think"
    assert choice.message.tool_calls is not None
    told = [call.model_dump() for call in choice.message.tool_calls]
    assert [(call["id"], call["type"], call["function"]) for call in told] == [
        ("call_1", "function", {"name": "look", "arguments": '{"at": 1}'}),
        ("call_2", "function", {"name": "look", "arguments": "{}"}),
    ]


def test_content_is_null_beside_calls_or_thoughts_alone(frames: Frames) -> None:
    for deltas, content in ((DELTAS[2:4], None), (DELTAS[:1], None), ([], ""), (DELTAS[1:], "x")):
        body = frames.completion([Choice(deltas, "stop", None)], USAGE)
        told = body["choices"][0]["message"]["content"]
        assert told == content or (content == "x" and told == "See: Done.")


def test_each_delta_is_a_chunk_and_the_first_words_carry_the_logprobs(frames: Frames) -> None:
    read = [chunk.choices[0] for chunk in chunks(frames.deltas(0, DELTAS, ENTRIES))]
    assert [choice.delta.content for choice in read if choice.delta.content] == ["See: ", "Done."]
    assert [choice.logprobs is not None for choice in read] == [at == 1 for at in range(8)]
    calls = [call for choice in read for call in choice.delta.tool_calls or ()]
    assert [(call.index, call.id, call.type) for call in calls] == [
        (0, "call_1", "function"), (0, None, None), (1, "call_2", "function"), (1, None, None),
        (0, None, None),
    ]  # fmt: skip
    functions = [call.function for call in calls if call.function is not None]
    assert [(each.name, each.arguments) for each in functions] == [
        ("look", ""), (None, '{"at": '), ("look", ""), (None, "{}"), (None, "1}"),
    ]  # fmt: skip


def test_an_error_frame_holds_the_error_body() -> None:
    body = error_body(WorkerLost("the worker is gone"), "abc")
    assert parse(frame(body) + DONE) == [body, "[DONE]"]
