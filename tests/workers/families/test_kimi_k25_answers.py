"""Kimi's answers are told alike however they are cut, and nothing of them is lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.families.answering import answers, check_places, events, read, told
from workers.families.kimi_k25.answers import read_answer_form
from workers.families.kimi_k25.markers import (
    CALL_ARGUMENTS,
    CALL_BEGIN,
    CALL_END,
    CALLS_BEGIN,
    CALLS_END,
    THINK_BEGIN,
    THINK_END,
)

FORM = read_answer_form(f"{CALLS_BEGIN} {THINK_END}")
TALKING = read_answer_form(CALLS_BEGIN)


def call(own: str, arguments: str) -> str:
    return f"{CALL_BEGIN}{own}{CALL_ARGUMENTS}{arguments}{CALL_END}"


def section(*calls: str) -> str:
    return f"{CALLS_BEGIN}{''.join(calls)}{CALLS_END}"


def test_a_section_holds_calls_with_the_models_own_ids() -> None:
    calls = section(call("functions.f:3", '{"a": 1}'), call("functions.g-h:4", "{}"))
    assert read(f"I look.{calls}", TALKING) == [
        ("words", "I look."),
        ("call", "f", "functions.f:3"), ("arguments", '{"a": 1}'), ("end",),
        ("call", "g-h", "functions.g-h:4"), ("arguments", "{}"), ("end",),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "name", "told_id"),
    [
        ("functions.f:0", "f", "functions.f:0"),
        (" functions.f:12\n", "f", "functions.f:12"),
        ("f:2", "f", "functions.f:2"),
        ("f", "f", "functions.f:0"),
        ("functions.a.b:1", "a.b", "functions.a.b:1"),
    ],
)
def test_ids_that_leave_something_out_are_filled_up(own: str, name: str, told_id: str) -> None:
    assert read(section(call(own, "{}")), TALKING)[0] == ("call", name, told_id)


def test_no_id_comes_twice_in_an_answer() -> None:
    text = section(*[call("functions.f:0", "{}")] * 2, call("functions.f:1", "{}"))
    ids = [entry[2] for entry in read(text, TALKING) if entry[0] == "call"]
    assert ids == ["functions.f:0", "functions.f:1", "functions.f:2"]


@pytest.mark.parametrize("own", ["", "0", ":1", "functions.:1", "f g", "functions.f:x"])
def test_a_call_without_a_name_is_words_letter_for_letter(own: str) -> None:
    told_words = read(f"See {section(call(own, '{}'))}", TALKING)
    assert told_words == [("words", f"See {call(own, '{}')}")]


def test_calls_may_stand_without_a_section_and_end_without_a_marker() -> None:
    expected = [
        ("call", "f", "functions.f:0"), ("arguments", "{}"), ("end",),
        ("call", "g", "functions.g:1"), ("arguments", '{"a"'), ("end",),
    ]  # fmt: skip
    one, two = call("functions.f:0", "{}"), call("functions.g:1", '{"a"')
    assert read(one + two, TALKING) == expected
    open_one, open_two = one.removesuffix(CALL_END), two.removesuffix(CALL_END)
    assert read(CALLS_BEGIN + open_one + open_two + CALLS_END, TALKING) == expected
    assert read(CALLS_BEGIN + open_one + open_two, TALKING) == expected


def test_arguments_that_were_left_out_are_an_empty_object() -> None:
    whole = section(call("functions.f:0", ""))
    assert read(whole, TALKING)[1] == ("arguments", "{}")
    cut = whole.removesuffix(CALLS_END).removesuffix(CALL_END)
    assert [entry[0] for entry in read(cut, TALKING)] == ["call", "end"]


def test_white_space_between_the_markers_is_structure() -> None:
    text = f"a\n{CALLS_BEGIN}\n{call('functions.f:0', '{}')}\n{CALLS_END}\n"
    assert [entry[0] for entry in read(text, TALKING)] == ["words", "call", "arguments", "end"]
    assert read(text, TALKING)[0] == ("words", "a")


def test_a_head_that_was_cut_is_words() -> None:
    assert read(f"{CALLS_BEGIN}{CALL_BEGIN}functions.f", TALKING) == [
        ("words", f"{CALL_BEGIN}functions.f")
    ]


def test_a_thought_keeps_its_white_space() -> None:
    text = f" \nI see. \n{THINK_END}\n\nIt is"
    assert read(text, FORM, in_thought=True) == [
        ("thoughts", " \nI see. \n"), ("words", "\n\nIt is"),
    ]  # fmt: skip
    assert read(THINK_BEGIN + text, FORM) == read(text, FORM, in_thought=True)


def test_a_section_ends_a_thought() -> None:
    text = f"I call{section(call('functions.f:0', '{}'))}"
    assert read(text, FORM, in_thought=True) == [
        ("thoughts", "I call"), ("call", "f", "functions.f:0"), ("arguments", "{}"), ("end",),
    ]  # fmt: skip


MARKERS = (CALLS_BEGIN, CALLS_END, CALL_BEGIN, CALL_ARGUMENTS, CALL_END, THINK_BEGIN, THINK_END)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(answers(*MARKERS, "functions.f:0", "g:1", "{}", " ", "\n", "words"), st.booleans())
def test_an_answer_is_told_alike_however_it_is_cut(
    answer: tuple[str, list[int]], in_thought: bool
) -> None:
    text, cuts = answer
    given_events = events(text, FORM, cuts, in_thought=in_thought)
    whole = told(events(text, FORM, in_thought=in_thought))
    assert told(given_events) == whole == read(text, FORM, in_thought=in_thought)
    check_places(text, given_events)
    ids = [entry[2] for entry in whole if entry[0] == "call"]
    assert len(ids) == len(set(ids)) == sum(entry[0] == "end" for entry in whole)
