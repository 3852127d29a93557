"""Qwen's answers are told alike however they are cut, and nothing of them is lost."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.families.answering import answers, check_places, events, read, told
from workers.families.answers import CallArguments, CallEnded, Words
from workers.families.qwen_vl.answers import read_answer_form

TOOLS = read_answer_form("<tool_call>")
THINKING = read_answer_form("<tool_call> <think> </think>")
PLAIN = read_answer_form("no structure")


def call(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def test_a_call_is_told_with_its_arguments_as_they_were_written() -> None:
    arguments = '{"city":  "Rome", "days": [1, 2.50], "deep": {"a": "}]\\" \\u00e9"}}'
    assert read(call("get_weather", arguments), TOOLS) == [
        ("call", "get_weather"), ("arguments", arguments), ("end",),
    ]  # fmt: skip


def test_white_space_beside_calls_is_structure_and_between_texts_it_is_not() -> None:
    text = f"I look.\n{call('f', '{}')}\n{call('g', '{}')}\n\nDone \n"
    assert read(text, TOOLS) == [
        ("words", "I look."),
        ("call", "f"), ("arguments", "{}"), ("end",),
        ("call", "g"), ("arguments", "{}"), ("end",),
        ("words", "\n\n\n\nDone \n"),
    ]  # fmt: skip
    assert read(f"\n\n{call('f', '{}')}\n x", TOOLS)[-1] == ("words", "x")
    assert read(f"\n{call('f', '{}')}\n\n", TOOLS)[-1] == ("end",)
    assert read("\n plain \n", TOOLS) == [("words", "\n plain \n")]


def test_arguments_come_as_they_are_written() -> None:
    text = call("f", '{"a": 1}')
    given_events = events(text, TOOLS, range(len(text)))
    pieces = [event.text for event in given_events if isinstance(event, CallArguments)]
    assert pieces == list('{"a": 1}')


@pytest.mark.parametrize(
    ("block", "arguments"),
    [
        ('{"arguments": {"a": 1}, "name": "f"}', '{"a": 1}'),
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": null}', "{}"),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": "Rome"}', '"Rome"'),
        ('{"name": "f", "arguments": [1]}', "[1]"),
        ('{"name": "f", "arguments": 5}', "5"),
        ('{"name": "f", "why": {"x": "y"}, "n": -1.5, "arguments": {}}', "{}"),
        ('{"name": "f", "arguments": {}}}', "{}"),  # one brace too many
        ('{"name": "f", "arguments": {"a": 1}', '{"a": 1}'),  # one too few
        ('{"name": "f", "arguments": {"text": "say <tool_call> and </tool_call>"}}',
         '{"text": "say <tool_call> and </tool_call>"}'),
        ('{"name": "f", "arguments": {"a": }}', '{"a": }'),
        ('{"name": "f", "arguments": {"a": "never closed\n', '{"a": "never closed\n'),
    ],
)  # fmt: skip
def test_odd_calls_are_calls_still(block: str, arguments: str) -> None:
    text = f"<tool_call>{block}</tool_call>"
    assert read(text, TOOLS) == [("call", "f"), ("arguments", arguments), ("end",)]


@pytest.mark.parametrize(
    "block",
    [
        "", "\n", "f(1)", "[1]", '{"name": 5, "arguments": {}}', '{"name": ""}',
        '{"arguments": {}}', "{}", '{"na', '{"name" "f"}', "{name: f}",
        '{"name": "f", arguments: {}}', '{"name": "f\\q", "arguments": {}}',
    ],
)  # fmt: skip
def test_a_block_without_a_call_is_words_letter_for_letter(block: str) -> None:
    text = f"See <tool_call>{block}</tool_call> there"
    assert read(text, TOOLS) == [("words", text)]


def test_an_answer_that_is_cut_loses_nothing() -> None:
    whole, arguments = call("f", '{"city": "Rome"}'), '{"city": "Rome"}'
    begin, end = whole.index(arguments), whole.index(arguments) + len(arguments)
    for length in range(1, len(whole)):
        expected: list[tuple[str, ...]] = [("words", whole[:length])]
        if length > begin:
            expected = [("call", "f"), ("arguments", whole[begin : min(length, end)]), ("end",)]
        assert read(whole[:length], TOOLS) == expected


def test_several_calls_in_one_block_and_blocks_without_an_end_are_told() -> None:
    one, two = '{"name": "f", "arguments": {}}', '{"name": "g", "arguments": {}}'
    expected = [
        ("call", "f"), ("arguments", "{}"), ("end",), ("call", "g"), ("arguments", "{}"), ("end",),
    ]  # fmt: skip
    assert read(f"<tool_call>\n{one}\n{two}\n</tool_call>", TOOLS) == expected
    assert read(f"<tool_call>\n{one}\n<tool_call>\n{two}\n", TOOLS) == expected
    assert read(f"<tool_call>{one} and so on", TOOLS)[-1] == ("words", "and so on")
    text = f"So <tool_call>{one} and"
    assert told(events(text, TOOLS)) == read(text, TOOLS)


def test_a_thought_is_told_without_the_lines_of_its_markers() -> None:
    for text, in_thought in (
        ("I see.\n\nSo\n</think>\n\nIt is", True),
        ("<think>\nI see.\n\nSo\n</think>\n\nIt is", False),
        ("<think>\nI see.\n\nSo\n</think>\n\nIt is", True),
        ("\n<think>I see.\n\nSo</think>It is", False),
    ):
        assert read(text, THINKING, in_thought=in_thought) == [
            ("thoughts", "I see.\n\nSo"), ("words", "It is"),
        ]  # fmt: skip


def test_calls_follow_a_thought() -> None:
    text = f"\nHm\n</think>\n\n{call('f', '{}')}"
    assert [entry[0] for entry in read(text, THINKING, in_thought=True)] == [
        "thoughts", "call", "arguments", "end",
    ]  # fmt: skip


def test_a_thought_that_never_ends_is_all_thought() -> None:
    text = f"a </b {call('f', '{}')}\n"
    assert read(text, THINKING, in_thought=True) == [("thoughts", text.rstrip("\n"))]
    assert read("", THINKING, in_thought=True) == []


def test_an_answer_without_a_thought_is_words() -> None:
    assert read(" \n it is </think>x", THINKING) == [("words", " \n it is </think>x")]
    assert read(" \n", THINKING) == [("words", " \n")]


def test_markers_are_text_where_the_template_knows_none() -> None:
    text = f"<think>a</think>{call('f', '{}')}"
    assert read(text, PLAIN) == [("words", text)]
    assert read(text, TOOLS, with_calls=False) == [("words", text)]


PIECES = (
    "<tool_call>", "</tool_call>", "\n", " ", '{"name": "f", "arguments": ', '{"a": "b"}', "}", "{",
    '"', "\\", '{"name": "', '", "arguments": {', "null", "<think>", "</think>", "words", ",",
    call("f", "{}"),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(answers(*PIECES), st.booleans(), st.booleans())
def test_an_answer_is_told_alike_however_it_is_cut(
    answer: tuple[str, list[int]], thinks: bool, in_thought: bool
) -> None:
    text, cuts = answer
    form = THINKING if thinks else TOOLS
    given_events = events(text, form, cuts, in_thought=in_thought)
    whole = told(events(text, form, in_thought=in_thought))
    assert told(given_events) == whole == read(text, form, in_thought=in_thought)
    check_places(text, given_events)
    kinds = [type(event) for event in given_events]
    assert kinds.count(CallEnded) == sum(entry[0] == "call" for entry in whole)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=8), VALUES, max_size=4), st.booleans())
def test_any_arguments_arrive_whole(value: dict[str, Any], ascii_only: bool) -> None:
    arguments = json.dumps(value, ensure_ascii=ascii_only)
    expected = [("call", "f"), ("arguments", arguments), ("end",)]
    assert read(call("f", arguments), TOOLS) == expected


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.text())
def test_words_alone_are_given_as_they_are(text: str) -> None:
    assert (
        "".join(
            event.text
            for event in events(text, TOOLS, range(len(text)))
            if isinstance(event, Words)
        )
        == text
        or "<tool_call>" in text
    )
