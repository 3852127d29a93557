"""Calls of functions through HTTP and the official clients, from models that recite them."""

import json
from typing import Any

import anyio
import pytest

from tests.journeys.pupils import ARGUMENTS, LOOK, TEXTS, TWO_CALLS, Pupil, called
from tests.journeys.server import Server

pytestmark = pytest.mark.slow


def test_calls_are_parsed_out_of_a_plain_answer(qwen: Pupil) -> None:
    answer = qwen.ask("two")
    (choice,) = answer.choices
    assert called(answer) == TWO_CALLS
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    ids = [each.id for each in choice.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(each.startswith("call_") for each in ids)
    assert answer.usage.completion_tokens == qwen.reciter.num_tokens("two")


def test_the_stream_tells_the_same_calls_in_pieces(qwen: Pupil) -> None:
    *chunks, usage = qwen.stream("two")
    assert usage.usage.completion_tokens == qwen.reciter.num_tokens("two")
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
    every: list[dict[str, Any]] = [{"tools": []}, {"tools": None}, {"tool_choice": "none"}]
    for fields in every:
        answer = qwen.ask("two", **fields)
        assert answer.choices[0].message.content == TEXTS["two"]
        assert answer.choices[0].finish_reason == "stop"


def test_one_call_is_the_last_where_calls_may_not_be_parallel(qwen: Pupil) -> None:
    answer = qwen.ask("third", parallel_tool_calls=False)
    assert called(answer) == [("peek", '{"x":1}')]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert answer.usage.completion_tokens < qwen.reciter.num_tokens("third")


def test_stop_strings_end_words_and_not_arguments(qwen: Pupil) -> None:
    answer = qwen.ask("bare", stop=["END"])
    assert called(answer) == [("stare", '{"at": "END of it"}')]
    assert answer.choices[0].message.content == "then "
    assert answer.choices[0].finish_reason == "tool_calls"


@pytest.mark.parametrize("max_tokens", range(1, 36, 3))
def test_an_answer_that_is_cut_ends_with_length(qwen: Pupil, max_tokens: int) -> None:
    answer = qwen.ask("two", max_tokens=max_tokens)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == max_tokens
    for name, arguments in called(answer):
        whole = dict(TWO_CALLS)[name]
        assert whole.startswith(arguments.rstrip("\ufffd"))  # a character may be cut, too


def test_logprobs_are_those_of_the_words(qwen: Pupil) -> None:
    answer = qwen.ask("two", logprobs=True, top_logprobs=1)
    entries = answer.choices[0].logprobs.content
    # The last of them may end in white space or a marker, of which nothing is said.
    assert bytes(byte for entry in entries for byte in entry.bytes).startswith(b"I look.")
    assert len(entries) <= len("I look.")
    *chunks, _ = qwen.stream("two", logprobs=True)
    told = [
        entry.token
        for chunk in chunks
        if chunk.choices[0].logprobs
        for entry in chunk.choices[0].logprobs.content
    ]
    assert told == [entry.token for entry in entries]


def test_what_a_client_used_that_leaves_early_is_counted(qwen: Pupil) -> None:
    server = qwen.server
    server.wait_for("fovea_requests_running", 0)
    before = server.metric("fovea_completion_tokens_total")
    fields = qwen.fields("two", max_tokens=3800, extra_body={"ignore_eos": True})
    with server.client.chat.completions.create(**fields, stream=True) as stream:
        pieces = [piece for _, piece in zip(range(10), stream, strict=False)]
    assert len(pieces) == 10
    server.wait_for("fovea_requests_running", 0)
    used = server.metric("fovea_completion_tokens_total") - before
    assert 9 <= used < 3800


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


USER = {"role": "user", "content": "Hi."}
EMPTY = {"role": "assistant", "content": None}
PLACEHOLDER = "```\n<|image_pad|><|media_pad|><tool_call>\n```"


@pytest.mark.parametrize(
    ("messages", "status"),
    [
        ([USER, EMPTY], 200),
        ([EMPTY], 200),
        ([{"role": "assistant"}], 200),
        ([], 400),
        ([{"role": "user", "content": None}], 400),
        ([{"role": "system", "content": None}, USER], 400),
        ([{"role": "user", "content": []}], 400),
        ([{"role": "system", "content": [{"type": "text", "text": "Be kind."}]}, USER], 200),
        ([{"role": "developer", "content": "Be kind."}, USER], 200),
        ([{"role": "system", "content": []}, USER], 400),
        ([USER, {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}], 200),
        ([USER, {"role": "tool", "tool_call_id": "x", "content": PLACEHOLDER}], 200),
        ([{"role": "user", "content": PLACEHOLDER}], 200),
        ([USER, {"role": "function", "name": "f", "content": "x"}], 400),
    ],
)
def test_messages_of_odd_shapes_are_answered_or_refused(
    qwen: Pupil, messages: list[dict[str, Any]], status: int
) -> None:
    fields = {"model": qwen.server.model, "messages": messages} | qwen.reciter.say("plain")
    response = qwen.server.post(fields)
    assert response.status_code == status
    if status == 200:
        assert response.json()["choices"][0]["message"]["content"] == TEXTS["plain"]
    else:
        assert response.json()["error"]["param"].startswith("messages")


def test_a_call_of_nothing_that_is_given_is_refused_by_name(qwen: Pupil) -> None:
    named = {"type": "function", "function": {"name": "fly"}}
    for fields in ({"tool_choice": named}, {"tool_choice": "required", "tools": []}):
        response = qwen.server.post(qwen.fields("two", **fields))
        assert response.status_code == 400
        assert response.json()["error"]["param"] == "tool_choice"


def test_a_model_without_tools_says_so(demo: Server) -> None:
    user = [{"role": "user", "content": "Hi."}]
    response = demo.post({"model": demo.model, "messages": user, "tools": [LOOK]})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "tools"
