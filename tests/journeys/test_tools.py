"""Calls, thoughts and results of tools through HTTP and the official clients.

The models recite answers that were chosen here, so every token comes from a real engine.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.journeys.server import Server, running
from tests.reciting import Reciter, make_reciter
from tests.templates import QWEN_THINKING, QWEN_TOOLS

pytestmark = pytest.mark.slow

LOOK = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look somewhere.",
        "parameters": {"type": "object", "properties": {"where": {"type": "string"}}},
    },
}
ARGUMENTS = '{"where": "Zürich 日本 🦊"}'


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


TEXTS = {
    "two": f"I look.\n{call('look', ARGUMENTS)}\n{call('see', '{}')}",
    "broken": f"Well: {call('look', '{')}, sorry.".replace('"name"', "name"),
    "plain": "No tool is needed 🦊.\n",
    "unknown": call("fly", '{"to": ["Mars"]}'),
    "bare": call("stare", '{"at": "END of it"}') + " then END and more",
    "third": call("peek", '{"x":1}') + "\n" + call("poke", '{"y":2}'),
}
Messages = list[dict[str, Any]]


class Pupil:
    """A server whose model recites, and requests to it."""

    def __init__(self, server: Server, reciter: Reciter) -> None:
        self.server = server
        self.reciter = reciter

    def fields(self, text: str, messages: Messages | None = None, **more: Any) -> dict[str, Any]:
        messages = messages or [{"role": "user", "content": "Go on."}]
        wishes = {"model": self.server.model, "messages": messages, "tools": [LOOK]}
        return wishes | self.reciter.say(text) | more

    def ask(self, text: str, messages: Messages | None = None, **more: Any) -> Any:
        create = self.server.client.chat.completions.create
        return create(**self.fields(text, messages, **more))

    def stream(self, text: str, **more: Any) -> list[Any]:
        return list(self.ask(text, stream=True, stream_options={"include_usage": True}, **more))


def pupil(folder: Path, model_type: str, texts: dict[str, str], **options: Any) -> Iterator[Pupil]:
    reciter = make_reciter(folder, model_type, texts, **options)
    with running(model=reciter.path) as server:
        yield Pupil(server, reciter)


@pytest.fixture(scope="module")
def qwen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Markers are spelt: the vocabulary has no tokens for them."""
    yield from pupil(tmp_path_factory.mktemp("qwen"), "qwen2_5_vl", TEXTS, template=QWEN_TOOLS)


THOUGHT = "Where is it?\n\nIn Zürich, I think."
THINKING_TEXTS = {
    "think": f"{THOUGHT}\n</think>\n\nI look.\n{call('look', ARGUMENTS)}",
    "long": "It goes on and on and never comes to an end",
}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pupil]:
    """Markers are tokens of the vocabulary, as in public checkpoints."""
    yield from pupil(
        tmp_path_factory.mktemp("thinker"),
        "qwen3_vl",
        THINKING_TEXTS,
        template=QWEN_THINKING,
        tokens=("<think>", "</think>", "<tool_call>", "</tool_call>"),
    )


def called(answer: Any, choice: int = 0) -> list[tuple[str, str]]:
    calls = answer.choices[choice].message.tool_calls or ()
    return [(each.function.name, each.function.arguments) for each in calls]


TWO_CALLS = [("look", ARGUMENTS), ("see", "{}")]


def test_calls_are_parsed_out_of_a_plain_answer(qwen: Pupil) -> None:
    answer = qwen.ask("two")
    (choice,) = answer.choices
    assert called(answer) == TWO_CALLS
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    ids = [each.id for each in choice.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(each.startswith("call_") for each in ids)
    assert answer.usage.completion_tokens == qwen.reciter.num_tokens["two"]


def test_the_stream_tells_the_same_calls_in_pieces(qwen: Pupil) -> None:
    *chunks, usage = qwen.stream("two")
    assert usage.usage.completion_tokens == qwen.reciter.num_tokens["two"]
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.content or "" for delta in deltas) == "I look."
    pieces = [piece for delta in deltas for piece in delta.tool_calls or ()]
    heads = [piece for piece in pieces if piece.id is not None]
    assert [(p.index, p.type, p.function.name, p.function.arguments) for p in heads] == [
        (0, "function", "look", ""), (1, "function", "see", ""),
    ]  # fmt: skip
    tails = [piece for piece in pieces if piece.id is None]
    assert len([piece for piece in tails if piece.index == 0]) > 4
    joined = ["".join(p.function.arguments for p in tails if p.index == at) for at in (0, 1)]
    assert joined == [ARGUMENTS, "{}"]
    assert [chunk.choices[0].finish_reason for chunk in chunks][-1] == "tool_calls"


def test_the_official_helper_gathers_the_calls(qwen: Pupil) -> None:
    with qwen.server.client.chat.completions.stream(**qwen.fields("two")) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    assert called(final) == TWO_CALLS
    assert final.choices[0].message.content == "I look."
    assert kinds.count("tool_calls.function.arguments.done") == 2


def test_the_asynchronous_helper_gathers_them_too(qwen: Pupil) -> None:
    async def run() -> Any:
        client = qwen.server.async_client()
        async with client.chat.completions.stream(**qwen.fields("two")) as stream:
            final = await stream.get_final_completion()
        await client.close()
        return final

    assert called(anyio.run(run)) == TWO_CALLS


@pytest.mark.parametrize("text", ["two", "broken", "plain", "unknown", "bare", "third"])
def test_nothing_of_the_structure_shows_and_nothing_else_is_lost(qwen: Pupil, text: str) -> None:
    answer = qwen.ask(text)
    *chunks, _ = qwen.stream(text)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == (answer.choices[0].message.content or "")
    expected = {
        "two": "I look.",
        "broken": TEXTS["broken"],
        "plain": TEXTS["plain"],
        "bare": "then END and more",
    }
    assert streamed == expected.get(text, "")
    assert (answer.choices[0].finish_reason == "tool_calls") == (text not in ("broken", "plain"))


def test_a_function_that_nobody_gave_is_called_all_the_same(qwen: Pupil) -> None:
    assert called(qwen.ask("unknown")) == [("fly", '{"to": ["Mars"]}')]


def test_without_tools_an_answer_is_words(qwen: Pupil) -> None:
    for fields in ({"tools": []}, {"tools": None}, {"tool_choice": "none"}):
        answer = qwen.ask("two", **fields)
        assert answer.choices[0].message.content == TEXTS["two"]
        assert answer.choices[0].finish_reason == "stop"


def test_one_call_is_the_last_where_calls_may_not_be_parallel(qwen: Pupil) -> None:
    answer = qwen.ask("third", parallel_tool_calls=False)
    assert called(answer) == [("peek", '{"x":1}')]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.completion_tokens < qwen.reciter.num_tokens["third"]


def test_stop_strings_end_words_and_not_arguments(qwen: Pupil) -> None:
    answer = qwen.ask("bare", stop=["END"])
    assert called(answer) == [("stare", '{"at": "END of it"}')]
    assert answer.choices[0].message.content == "then"
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("max_tokens", range(1, 36, 3))
def test_an_answer_that_is_cut_ends_with_length(qwen: Pupil, max_tokens: int) -> None:
    answer = qwen.ask("two", max_tokens=max_tokens)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == max_tokens
    for name, arguments in called(answer):
        whole = dict(TWO_CALLS)[name]
        assert whole.startswith(arguments)


def test_logprobs_are_those_of_the_words(qwen: Pupil) -> None:
    answer = qwen.ask("two", logprobs=True, top_logprobs=1)
    entries = answer.choices[0].logprobs.content
    assert bytes(byte for entry in entries for byte in entry.bytes) == b"I look."
    *chunks, _ = qwen.stream("two", logprobs=True)
    told = [
        entry.token
        for chunk in chunks
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert told == [entry.token for entry in entries]


def test_each_choice_has_calls_of_its_own(qwen: Pupil) -> None:
    first = {str(token): 5 for token in qwen.reciter.first_tokens.values()}
    answer = qwen.ask("two", n=6, temperature=1, seed=3, logit_bias=first)
    calls = [called(answer, choice) for choice in range(6)]
    assert len({json.dumps(each) for each in calls}) > 1
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)
    stream = qwen.ask("two", n=6, temperature=1, seed=3, logit_bias=first, stream=True)
    streamed: list[dict[int, list[str]]] = [{} for _ in range(6)]
    for chunk in stream:
        for choice in chunk.choices:
            for piece in choice.delta.tool_calls or ():
                pair = streamed[choice.index].setdefault(piece.index, ["", ""])
                pair[0] += piece.function.name or ""
                pair[1] += piece.function.arguments or ""
    assert [[tuple(pair) for pair in each.values()] for each in streamed] == calls
