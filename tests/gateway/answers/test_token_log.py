"""Entries of tokens: their bytes join to the text, and none is told of what stays hidden."""

import math
import random

import pytest
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.answers.text_stream import TextStream
from gateway.answers.token_log import Entry, TokenLog
from gateway.prompts.letters import LETTERS
from workers.families.answers import Event, Words
from workers.sampling import Likelihood

END = 762  # <|im_end|>


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))


def told(tokenizer: Tokenizer, ids: list[int], *stop: str) -> list[tuple[str, list[Entry]]]:
    """Text and entries of each push, and of the end."""
    stream, log = TextStream(Speller(tokenizer), stop), TokenLog(Speller(tokenizer))
    found = []
    for token_id in ids:
        log.add(token_id, Likelihood(-0.5, ()), stream.num_characters)
        words = words_of(stream.push([token_id]))
        found.append((joined_text(words), log.take(words)))
        if stream.stopped:
            return found
    words = words_of(stream.finish())
    return [*found, (joined_text(words), log.take(words))]


def words_of(events: list[Event]) -> list[Words]:
    return [event for event in events if isinstance(event, Words)]


def joined_text(words: list[Words]) -> str:
    return "".join(each.text for each in words)


def joined(entries: list[Entry]) -> bytes:
    return b"".join(bytes(entry["bytes"]) for entry in entries)


def test_bytes_join_to_the_text_at_the_end_and_lag_behind_it_never() -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    chance = random.Random(1)
    for _ in range(50):
        text = "".join(chance.choices("ab é日🦊\n", k=8))
        pieces = told(tokenizer, tokenizer.encode(text).ids)
        for end in range(1, len(pieces) + 1):
            given = "".join(part for part, _ in pieces[:end])
            entries = [entry for _, part in pieces[:end] for entry in part]
            assert joined(entries).startswith(given.encode())
        assert joined(entries) == text.encode()


def test_a_character_of_several_tokens_comes_with_all_of_them(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_to_id(LETTERS[byte]) or 0 for byte in "€".encode()]
    pieces = told(tokenizer, ids)
    assert [(text, len(entries)) for text, entries in pieces[:3]] == [("", 0), ("", 0), ("€", 3)]
    assert [entry["bytes"] for entry in pieces[2][1]] == [[0xE2], [0x82], [0xAC]]
    assert [entry["token"] for entry in pieces[2][1]] == ["\ufffd"] * 3


def test_a_character_that_stays_broken_comes_at_the_end(tokenizer: Tokenizer) -> None:
    lone = tokenizer.token_to_id(LETTERS[0xE2]) or 0
    assert [(text, joined(entries)) for text, entries in told(tokenizer, [lone])] == [
        ("", b""),
        ("\ufffd", b"\xe2"),
    ]


def test_tokens_that_a_stop_string_hides_are_not_told(tokenizer: Tokenizer) -> None:
    ids = [tokenizer.token_to_id(letter) or 0 for letter in "aXYbXYZc"]
    pieces = told(tokenizer, ids, "XYZ")
    assert [(text, joined(entries)) for text, entries in pieces] == [
        ("a", b"a"), ("", b""), ("", b""), ("XYb", b"XYb"), ("", b""), ("", b""), ("", b""),
    ]  # fmt: skip


def test_a_token_that_a_stop_string_cuts_is_told_whole(tokenizer: Tokenizer) -> None:
    (white,) = tokenizer.encode(" white").ids
    (text, entries), *_ = told(tokenizer, [white], "it")
    assert (text, joined(entries)) == (" wh", b" white")


def test_special_tokens_are_told_only_among_the_likeliest(tokenizer: Tokenizer) -> None:
    stream, log = TextStream(Speller(tokenizer), ()), TokenLog(Speller(tokenizer))
    for token_id in (END, 40):
        likelihood = Likelihood(-1.0, ((END, -0.1), (40, -math.inf)))
        log.add(token_id, likelihood, stream.num_characters)
        words = words_of(stream.push([token_id]))
    (entry,) = log.take(words)
    assert entry["bytes"] == list(tokenizer.decode([40]).encode())
    assert entry["top_logprobs"] == [
        {"token": "<|im_end|>", "logprob": -0.1, "bytes": None},
        {"token": tokenizer.decode([40]), "logprob": -9999.0, "bytes": entry["bytes"]},
    ]


def test_tokens_between_words_are_not_told(tokenizer: Tokenizer) -> None:
    log = TokenLog(Speller(tokenizer))
    for letter, start in zip("abcdefg", (0, 1, 1, 3, 5, 5, 7), strict=True):
        log.add(tokenizer.token_to_id(letter) or 0, Likelihood(-0.5, ()), start)
    log.add(END, Likelihood(-0.5, ()), 8)
    assert joined(log.take([Words("x", 0)])) == b"a"
    # The words from 4 on begin within the token that begins at 3.
    assert joined(log.take([Words("x", 4)])) == b"d"
    assert joined(log.take([Words("xy", 5)])) == b"ef"
    assert log.take([Words("x", 9)]) == []


def test_where_all_tokens_are_told_none_is_left_out_at_the_end(tokenizer: Tokenizer) -> None:
    speller = Speller(tokenizer)
    stop = (40, Likelihood(-3.0, ()))
    for tells_special in (True, False):
        stream, log = TextStream(speller, ()), TokenLog(speller, tells_special=tells_special)
        names = []
        for token_id in (END, 41, END, END):
            log.add(token_id, Likelihood(-1.0, ()), stream.num_characters)
            names += log.take(words_of(stream.push([token_id])))
        names += log.rest(stop)
        assert log.rest(None) == []
        end, word, last = (speller.spell(each).decode() for each in (END, 41, 40))
        expected = [end, word, end, end, last] if tells_special else [word]
        assert [entry["token"] for entry in names] == expected
        assert all(entry["bytes"] is None for entry in names if entry["token"] == end)
