"""Pieces of an answer join to the text of all its ids, however the ids arrive."""

import itertools
import random
import time
from collections.abc import Iterator, Sequence

import pytest
from tokenizers import AddedToken, Tokenizer

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.answers.text_stream import TextStream
from gateway.prompts.letters import LETTERS
from workers.families.answers import Event, Words

NUM_IDS = 770  # two more than the vocabulary has: models may be padded
BYTE_IDS = 256


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))


def cuts(ids: Sequence[int]) -> Iterator[list[Sequence[int]]]:
    """The ids in every possible series of pieces."""
    for flags in itertools.product((False, True), repeat=max(len(ids) - 1, 0)):
        edges = [0, *(index for index, cut in enumerate(flags, 1) if cut), len(ids)]
        yield [ids[start:end] for start, end in itertools.pairwise(edges)]


def text_of(events: Sequence[Event]) -> str:
    """The text of events that are words."""
    words = [event for event in events if isinstance(event, Words)]
    assert len(words) == len(events)
    return "".join(each.text for each in words)


def run(tokenizer: Tokenizer, pieces: Sequence[Sequence[int]], *stop: str) -> list[str]:
    """What each push gives, then what the end gives."""
    stream = TextStream(Speller(tokenizer), stop)
    return [*(text_of(stream.push(piece)) for piece in pieces), text_of(stream.finish())]


def random_ids(chance: random.Random, length: int) -> list[int]:
    # Few different ids make long runs; byte ids alone make broken characters.
    limit = chance.choice((NUM_IDS, BYTE_IDS, BYTE_IDS))
    pool = chance.sample(range(limit), k=chance.choice((2, 5, limit)))
    return chance.choices(pool, k=length)


def test_pieces_join_to_the_decoded_whole_for_every_cut(tokenizer: Tokenizer) -> None:
    chance = random.Random(1)
    for _ in range(40):
        ids = random_ids(chance, chance.randint(0, 7))
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert all("".join(run(tokenizer, pieces)) == expected for pieces in cuts(ids))


@pytest.mark.slow
def test_long_answers_join_to_the_decoded_whole(tokenizer: Tokenizer) -> None:
    chance = random.Random(2)
    for _ in range(500):
        ids = random_ids(chance, 60)
        expected = tokenizer.decode(ids, skip_special_tokens=True)
        assert "".join(run(tokenizer, [[token_id] for token_id in ids])) == expected


@pytest.mark.parametrize("text", ["é", "日本語", "a🦊b👩‍👩‍👧", "ﬁ\u0301\u200b"])
def test_a_character_split_over_tokens_is_given_whole(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert len(ids) > len(text.encode()) // 3
    pieces = run(tokenizer, [[token_id] for token_id in ids])
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert pieces[-1] == ""


def test_an_answer_that_ends_inside_a_character_shows_it(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a🦊").ids[:-1]
    assert run(tokenizer, [ids]) == ["a", "\ufffd"]


def test_special_tokens_are_left_out(tokenizer: Tokenizer) -> None:
    assert "".join(run(tokenizer, [[762, 40, 760], [41, 766]])) == tokenizer.decode([40, 41])


def test_an_added_token_that_is_not_special_stands_for_itself() -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<日本 x>"), AddedToken("<tool_call>")])
    ids = tokenizer.encode("a<日本 x>b<tool_call>").ids
    assert "".join(run(tokenizer, [ids])) == "a<日本 x>b<tool_call>" == tokenizer.decode(ids)


def first_stop(text: str, stops: Sequence[str]) -> str:
    """The text before the stop string that is complete first, the longest of those."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@pytest.mark.slow
def test_an_answer_ends_before_the_first_stop_for_every_cut(tokenizer: Tokenizer) -> None:
    chance = random.Random(3)
    num_stopped = 0
    for _ in range(60):
        text = "".join(chance.choices("ab日", k=8))
        stops = ["".join(chance.choices("ab日", k=chance.randint(1, 4))) for _ in range(3)]
        ids = tokenizer.encode(text).ids[:9]
        expected = first_stop(tokenizer.decode(ids), stops)
        num_stopped += expected != tokenizer.decode(ids)
        for pieces in cuts(ids):
            assert "".join(run(tokenizer, pieces, *stops)) == expected, (text, stops, pieces)
    assert 20 < num_stopped < 60


def test_nothing_of_a_stop_string_is_ever_given(tokenizer: Tokenizer) -> None:
    stream = TextStream(Speller(tokenizer), ["DEFGHIJ"])
    given = [text_of(stream.push([token_id])) for token_id in tokenizer.encode("ABCDEFGHIJKL").ids]
    assert "".join(given) == "ABC"
    assert stream.stopped
    assert stream.push([40]) == []
    assert stream.finish() == []


def test_the_beginning_of_a_stop_string_comes_when_it_is_not_one(tokenizer: Tokenizer) -> None:
    stream = TextStream(Speller(tokenizer), ["aab"])
    given = [text_of(stream.push(tokenizer.encode(letter).ids)) for letter in "xaaacaa"]
    assert given == ["x", "", "", "a", "aac", "", ""]
    assert text_of(stream.finish()) == "aa"
    assert not stream.stopped


def test_a_stop_string_may_lie_inside_one_token(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a white circle").ids
    assert "".join(run(tokenizer, [ids], "hit")) == "a w"


def stop_after(text: str, stop: str, min_tokens: int) -> str:
    """The text before the first end of `stop` past so many one-letter tokens."""
    for end in range(min_tokens + 1, len(text) + 1):
        if text[:end].endswith(stop):
            return text[: end - len(stop)]
    return text


@pytest.mark.parametrize("stop", ["ab", "aa", "abab", "b"])
def test_the_first_tokens_complete_no_stop_string(tokenizer: Tokenizer, stop: str) -> None:
    chance = random.Random(4)
    for _ in range(60):
        text = "".join(chance.choices("ab", k=12))
        min_tokens = chance.randint(0, 13)
        stream = TextStream(Speller(tokenizer), [stop], min_tokens)
        ids = [tokenizer.token_to_id(letter) for letter in text]
        pieces = [stream.push([token_id]) for token_id in ids if token_id is not None]
        found = "".join(map(text_of, [*pieces, stream.finish()]))
        assert found == stop_after(text, stop, min_tokens), (text, min_tokens)


def test_words_say_where_they_stand_in_the_answer(tokenizer: Tokenizer) -> None:
    stream = TextStream(Speller(tokenizer), ["bx"])
    euro = [tokenizer.token_to_id(LETTERS[byte]) for byte in "€".encode()]
    ids = [
        *tokenizer.encode("a").ids,
        *euro,
        *tokenizer.encode("b").ids,
        *tokenizer.encode("c").ids,
    ]
    assert [(stream.push([token_id or 0]), stream.num_characters) for token_id in ids] == [
        ([Words("a", 0)], 1),
        ([], 1),
        ([], 1),
        ([Words("€", 1)], 2),
        ([], 3),
        ([Words("bc", 2)], 4),
    ]


def test_an_empty_stop_string_never_stops(tokenizer: Tokenizer) -> None:
    assert "".join(run(tokenizer, [tokenizer.encode("abc").ids], "")) == "abc"


@pytest.mark.slow
@pytest.mark.parametrize("stop", ["", "a" * 1000 + "b"])
def test_the_cost_is_linear(tokenizer: Tokenizer, stop: str) -> None:
    # A lone continuation byte is no character; 30000 of them in a row stay so to the end.
    lone = tokenizer.token_to_id("Ģ")
    assert lone is not None
    seconds = -time.process_time()
    for token_id in (lone, *tokenizer.encode("a").ids):
        stream = TextStream(Speller(tokenizer), [stop])
        pushed = "".join(text_of(stream.push([token_id])) for _ in range(30_000))
        text = pushed + text_of(stream.finish())
        assert len(text) == 30_000
    assert seconds + time.process_time() < 1.0
