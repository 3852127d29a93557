"""Calls written as tags are told as JSON of their schema's types, alike however they are cut."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.families.answering import Told, answers, check_places, events, read, told
from workers.families.answers import CallArguments, CallEnded
from workers.families.qwen_vl.answers import read_answer_form

FORM = read_answer_form("<tool_call>\n<function=example>")
PARAMETERS: dict[str, Any] = {
    "$defs": {"side": {"anyOf": [{"$ref": "#/$defs/length"}, {"type": "null"}]},
              "length": {"type": "integer"}},
    "properties": {
        "text": {"type": "string"}, "count": {"type": "integer"}, "size": {"type": "number"},
        "on": {"type": "boolean"}, "list": {"type": "array"}, "map": {"type": "object"},
        "side": {"$ref": "#/$defs/side"}, "note": {"type": ["string", "null"]},
        "name": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "any": {},
        "colour": {"enum": ["red", "5", 5]}, "either": {"oneOf": [{"type": "integer"}, {}]},
        "nothing": {"type": "null"}, "shape": {"properties": {"a": {}}},
    },
}  # fmt: skip
FUNCTIONS = {"f": PARAMETERS, "g": {"additionalProperties": {"type": "integer"}}}


def call(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def hear(text: str) -> Told:
    return read(text, FORM, functions=FUNCTIONS)


def arguments(text: str) -> str:
    _, (_, written), end = hear(text)
    assert end == ("end",)
    return written


def test_calls_are_told_with_arguments_as_json_and_words_around_them() -> None:
    first, second = call("f", ("text", "Rome"), ("count", "3")), call("g")
    assert hear(f"I look.\n\n{first}\n{second}\nDone") == [
        ("words", "I look."),
        ("call", "f"), ("arguments", '{"text": "Rome", "count": 3}'), ("end",),
        ("call", "g"), ("arguments", "{}"), ("end",),
        ("words", "\n\n\n\nDone"),
    ]  # fmt: skip


VALUES = [
    ("text", "5", '"5"'), ("text", "null", '"null"'), ("text", "", '""'), ("text", "\n a\n", None),
    ("text", 'say "é\\n" 🦊', None), ("text", "<b>1 < 2</b>\n</p>", None),
    ("text", "a </parameter> b", None), ("text", "a\n</parameter>b", None),
    ("text", "is <tool_call>{}</tool_call>", None), ("text", "<parameter=x>\n", None),
    ("text", "a </function> b", None), ("text", "x\n<parameter=other>\ny", None),
    ("text", "x\n<parameter=text>\ny", None),
    ("count", "12", "12"), ("count", " -3 ", "-3"), ("count", "4.0", "4.0"), ("count", "4.5", None),
    ("count", "9" * 30, "9" * 30), ("count", "9" * 9000, None), ("count", "None", "null"),
    ("size", "1.50", "1.50"), ("size", "2", "2"), ("size", "1e3", "1e3"), ("size", "NaN", None),
    ("on", "True", "true"), ("on", "false", "false"), ("on", "yes", None),
    ("list", '[1, "a"]', '[1, "a"]'), ("list", "['a', None, True]", '["a", null, true]'),
    ("list", "a, b", None), ("list", "[" * 5000, None), ("list", "[1e999]", "[1e999]"),
    ("map", '{"a": {"b": 1}}', '{"a": {"b": 1}}'), ("map", "{'a': 1}", '{"a": 1}'),
    ("map", "{1, 2}", None), ("map", "[1]", None), ("map", "__import__('os')", None),
    ("shape", '{"a":\n1}', '{"a":\n1}'),
    ("side", "7", "7"), ("side", "null", "null"), ("side", "wide", None),
    ("note", "None", "null"), ("note", "null", "null"), ("note", "nullify", None),
    ("note", "nul", None), ("note", "", None), ("name", "NULL", "null"), ("name", "Ann", None),
    ("any", "5", None), ("any", "null", None), ("colour", "red", None), ("colour", "5", "5"),
    ("either", "5", "5"), ("either", "five", None), ("nothing", "null", "null"),
    ("unknown", "5", None),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "expected"), VALUES)
def test_a_value_is_json_of_its_type_or_a_string(
    name: str, value: str, expected: str | None
) -> None:
    written = json.dumps(value, ensure_ascii=False) if expected is None else expected
    text = call("f", (name, value), ("text", "end"))
    assert arguments(text) == f'{{"{name}": {written}, "text": "end"}}'


def test_parameters_that_a_function_does_not_name_follow_its_schema_for_others() -> None:
    assert arguments(call("g", ("x", "5"), ("y", "z"))) == '{"x": 5, "y": "z"}'
    assert arguments(call("h", ("x", "5"))) == '{"x": "5"}'


def test_strings_come_as_they_are_written_and_others_at_their_end() -> None:
    text = call("f", ("text", "Rome"), ("count", "42"), ("note", "never"))
    pieces = [
        event.text
        for event in events(text, FORM, range(len(text)), functions=FUNCTIONS)
        if isinstance(event, CallArguments)
    ]
    assert pieces == [
        '{"text": ', '"R', "o", "m", "e", '"', ', "count": ', "42", ', "note": ',
        '"ne', "v", "e", "r", '"', "}",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ("<function=f></function>", "{}"),
        ("<function=f>\n</function>\n", "{}"),
        ("<function=f>", "{}"),
        ("<function=f>\n<parameter=count>5</parameter></function>", '{"count": 5}'),
        ("<function=f><parameter=text>a</parameter>\n", '{"text": "a"}'),
        ("<function=f><parameter=text>\na\n</function>\n", '{"text": "a"}'),
        ("<function=f><parameter=text>\na\n", '{"text": "a"}'),
        ("<function=f><parameter=text>\na\n<parameter=count>\n5\n</function>",
         '{"text": "a", "count": 5}'),
        ("<function=f>\nso:\n<parameter=text>\na\n</parameter>\n</function>", '{"text": "a"}'),
        ('<function=f>\n{"text": "a"}\n</function>', '{"text": "a"}'),
        ("<function=f>\nRome\n</function> and more", "Rome"),
        ("<function= f >\n<parameter= text >\na\n</parameter>\n</function>", '{"text": "a"}'),
    ],
)  # fmt: skip
def test_odd_calls_are_calls_still(block: str, expected: str) -> None:
    assert arguments(f"<tool_call>\n{block}</tool_call>") == expected


@pytest.mark.parametrize(
    "block",
    ["", "\n", "f(1)", '{"name": "f"}', "<function>", "<function=>", "<function=a\nb>", "<fun",
     "<function=f", "<parameter=a>"],
)  # fmt: skip
def test_a_block_without_a_call_is_words_letter_for_letter(block: str) -> None:
    text = f"See <tool_call>{block}</tool_call> there"
    assert hear(text) == [("words", text)]


def test_several_calls_in_one_block_and_blocks_without_an_end_are_told() -> None:
    one, two = "<function=f>\n</function>", "<function=g>\n</function>"
    expected = [
        ("call", "f"), ("arguments", "{}"), ("end",), ("call", "g"), ("arguments", "{}"), ("end",),
    ]  # fmt: skip
    assert hear(f"<tool_call>\n{one}\n{two}\n</tool_call>") == expected
    assert hear(f"<tool_call>\n{one}\n<tool_call>\n{two}\n") == expected
    assert hear(f"<tool_call>\n<function=f>\n<tool_call>\n{two}") == expected
    assert hear(f"<tool_call>{one} and so on")[-1] == ("words", "and so on")


def test_an_answer_that_is_cut_tells_the_beginning_of_what_it_would_have_told() -> None:
    text = call("f", ("text", "Rome\nA 🦊"), ("count", "42"), ("note", "nobody"))
    _, (_, whole), _ = hear(text)
    for length in range(text.index(">", 12) + 1, len(text)):
        told_of_cut = hear(text[:length])
        assert told_of_cut[0] == ("call", "f")
        assert told_of_cut[-1] == ("end",)
        assert whole.startswith("".join(each[1] for each in told_of_cut[1:-1]))
    for length in range(1, text.index(">", 12) + 1):
        assert hear(text[:length]) == [("words", text[:length])]


STRANGE: list[Any] = [
    {"properties": [1]}, {"properties": {"a": 5}}, {"properties": {"a": {"type": 5}}},
    {"properties": {"a": {"enum": {}}}}, {"properties": {"a": {"$ref": "#/properties/a"}}},
    {"properties": {"a": {"$ref": "https://h/x"}}}, {"properties": {"a": {"$ref": 1}}},
    {"properties": {"a": {"anyOf": [{"$ref": "#/properties/a"}]}}}, {"$ref": "#"},
    {"properties": {"a": {"type": [1, "text"]}}}, {"properties": None},
]  # fmt: skip


@pytest.mark.parametrize("schema", STRANGE)
def test_a_schema_that_says_nothing_sensible_leaves_strings(schema: Any) -> None:
    text = call("f", ("a", "5"))
    assert read(text, FORM, functions={"f": schema})[1] == ("arguments", '{"a": "5"}')


PIECES = (
    "<tool_call>", "</tool_call>", "\n", " ", "<function=f>", "<function=", "</function>", "</",
    "<parameter=text>", "<parameter=count>", "</parameter>", "\n</parameter>\n", "5", "null", ">",
    "<parameter=note>\n", "</parameter>\n</function>", "words", "nu", call("f", ("list", "[1]")),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(answers(*PIECES))
def test_an_answer_is_told_alike_however_it_is_cut(answer: tuple[str, list[int]]) -> None:
    text, cuts = answer
    given_events = events(text, FORM, cuts, functions=FUNCTIONS)
    whole = told(events(text, FORM, functions=FUNCTIONS))
    assert told(given_events) == whole == hear(text)
    check_places(text, given_events)
    kinds = [type(event) for event in given_events]
    assert kinds.count(CallEnded) == sum(entry[0] == "call" for entry in whole)


SAID = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda each: "</p" not in each)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.fixed_dictionaries({
    "text": SAID, "count": st.integers(), "size": st.floats(allow_nan=False, allow_infinity=False),
    "on": st.booleans(), "list": st.lists(JSON, max_size=3), "side": st.none() | st.integers(),
    "map": st.dictionaries(st.text(max_size=5), JSON, max_size=3),
}))  # fmt: skip
def test_arguments_arrive_as_the_template_would_show_them(value: dict[str, Any]) -> None:
    shown = {
        key: json.dumps(each) if isinstance(each, dict | list) else str(each)
        for key, each in value.items()
    }
    assert json.loads(arguments(call("f", *shown.items()))) == value
