"""Ids of answers with thoughts and calls become events, whatever tokens their markers are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.answers.text_stream import TextStream
from tests.workers.families.answering import Told, read, told
from workers.families.answers import Event, Words
from workers.families.qwen_vl.answers import read_answer_form

FORM = read_answer_form("<tool_call> </think>")
MARKERS = ["<tool_call>", "</tool_call>", "<think>", "</think>"]
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "日本🦊"}}\n</tool_call>'
ANSWER = f"\nI wonder.\n</think>\n\nSee: {CALL}\n{CALL}"
TOLD: Told = [
    ("thoughts", "I wonder."), ("words", "See:"),
    *[("call", "f"), ("arguments", '{"a": "日本🦊"}'), ("end",)] * 2,
]  # fmt: skip


def vocabulary(*markers: str) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    tokenizer.add_tokens(list(markers))
    return tokenizer


SPELT, WHOLE, MIXED = vocabulary(), vocabulary(*MARKERS), vocabulary("</think>", "</tool_call>")


def stream_of(tokenizer: Tokenizer, *stop: str, min_tokens: int = 0) -> TextStream:
    stream = TextStream(Speller(tokenizer), stop, min_tokens)
    stream.read_as(FORM, in_thought=True, functions={})
    return stream


def run(stream: TextStream, ids: list[int]) -> list[Event]:
    events = [event for token_id in ids for event in stream.push([token_id])]
    return events + stream.finish()


@pytest.mark.parametrize("tokenizer", [SPELT, WHOLE, MIXED], ids=["spelt", "whole", "mixed"])
def test_an_answer_is_read_alike_from_any_vocabulary(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(ANSWER).ids
    assert told(run(stream_of(tokenizer), ids)) == TOLD
    assert told(run(stream_of(tokenizer), [*ids, 762])) == TOLD


@pytest.mark.parametrize("tokenizer", [SPELT, WHOLE, MIXED], ids=["spelt", "whole", "mixed"])
def test_tokens_are_thoughts_up_to_the_end_marker(tokenizer: Tokenizer) -> None:
    thought = len(tokenizer.encode(ANSWER.partition("</think>")[0]).ids)
    marker = len(tokenizer.encode("</think>").ids)
    stream = stream_of(tokenizer)
    run(stream, tokenizer.encode(ANSWER).ids)
    assert stream.num_thought_tokens == thought + marker
    unfinished = stream_of(tokenizer)
    run(unfinished, tokenizer.encode(ANSWER).ids[:3])
    assert unfinished.num_thought_tokens == 3


def test_a_thought_that_the_answer_opens_counts_from_its_marker() -> None:
    stream = TextStream(Speller(WHOLE), ())
    stream.read_as(FORM, in_thought=False, functions={})
    ids = WHOLE.encode("<think>Hm</think>So").ids
    assert told(run(stream, ids)) == [("thoughts", "Hm"), ("words", "So")]
    assert stream.num_thought_tokens == len(ids) - len(WHOLE.encode("So").ids)


def test_letters_are_no_marker_where_the_vocabulary_has_a_token() -> None:
    letters = [SPELT.encode(marker).ids for marker in MARKERS]
    ids = [token_id for each in letters for token_id in each]
    assert told(run(stream_of(WHOLE), ids)) == [("thoughts", "".join(MARKERS))]
    assert told(run(stream_of(WHOLE), WHOLE.encode("</think>").ids + ids)) == [
        ("words", "".join(MARKERS))
    ]


def test_a_special_token_is_a_marker_if_the_form_says_so() -> None:
    tokenizer = vocabulary()
    tokenizer.add_special_tokens(MARKERS)
    assert told(run(stream_of(tokenizer), tokenizer.encode(ANSWER).ids)) == TOLD


def test_a_marker_breaks_a_character_off() -> None:
    begun = SPELT.encode("é").ids[:1]
    ids = [*WHOLE.encode("</think>x").ids, *begun, *WHOLE.encode(CALL).ids]
    assert told(run(stream_of(WHOLE), ids))[0] == ("words", "x\ufffd")


def test_stop_strings_are_looked_for_in_words_alone() -> None:
    text = f"b ab\n</think>\n\na{CALL} ba b{CALL}{CALL}"
    words = [event for event in run(stream_of(WHOLE), WHOLE.encode(text).ids) if is_words(event)]
    assert "".join(each.text for each in words if isinstance(each, Words)) == "a ba b"
    for stop, expected in (("b a", "a ba b"), ("ba", "a "), (" b", "a"), ("f", "a ba b")):
        stream = stream_of(WHOLE, stop)
        entries = told(run(stream, WHOLE.encode(text).ids))
        assert stream.stopped == (expected != "a ba b")
        assert "".join(entry[1] for entry in entries if entry[0] == "words") == expected
        assert entries[0] == ("thoughts", "b ab")


def is_words(event: Event) -> bool:
    return isinstance(event, Words)


def test_no_stop_string_lies_on_both_sides_of_a_call() -> None:
    stream = stream_of(WHOLE, "xy")
    entries = told(run(stream, WHOLE.encode(f"</think>x{CALL}y").ids))
    assert [entry[1] for entry in entries if entry[0] == "words"] == ["x", "y"]
    assert not stream.stopped


def test_the_first_tokens_complete_no_stop_string() -> None:
    ids = WHOLE.encode("</think>a").ids + WHOLE.encode("ab").ids * 3
    for min_tokens in range(len(ids) + 1):
        stream = stream_of(WHOLE, "b", min_tokens=min_tokens)
        run(stream, ids)
        assert stream.stopped == any(
            "b" in WHOLE.decode([token_id]) for token_id in ids[min_tokens:]
        )


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(st.sampled_from([*MARKERS, CALL, "\n", "{", '"', "x", "日"]),
                          st.text(max_size=4)), max_size=12))  # fmt: skip
def test_ids_are_told_as_their_text_is(pieces: list[str]) -> None:
    # Text that spells a marker by chance would be one: the reader is asked what it is.
    text = "".join(pieces)
    for tokenizer in (SPELT, WHOLE):
        ids = tokenizer.encode(text).ids
        if tokenizer.decode(ids, skip_special_tokens=False) == text and 760 not in ids:
            assert told(run(stream_of(tokenizer), ids)) == read(text, FORM, in_thought=True)
