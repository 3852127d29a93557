"""Where the tokens of raw prompts begin in their text."""

import random

import pytest
from tokenizers import Tokenizer, normalizers, processors

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.prompts.token_starts import starts_in_text, starts_when_spelt
from tests.vocabularies import random_text


def load() -> Tokenizer:
    return Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))


def test_texts_and_their_tokens_have_the_same_places() -> None:
    tokenizer, chance = load(), random.Random(2)
    speller = Speller(tokenizer)
    for _ in range(200):
        text = random_text(chance) + "<|im_end|>" + random_text(chance)
        if "\ufffd" in tokenizer.decode(tokenizer.encode(text).ids):
            continue
        encoding = tokenizer.encode(text)
        starts = list(starts_in_text(encoding))
        assert starts == list(starts_when_spelt(encoding.ids, speller))
        for token_id, start in zip(encoding.ids, starts, strict=True):
            word = speller.spell(token_id).decode(errors="ignore")
            assert word in text[start : start + len(word) + 1]


def test_what_a_normaliser_changes_is_placed_in_the_text_as_it_came() -> None:
    tokenizer = load()
    tokenizer.normalizer = normalizers.NFC()
    text = "e\u0301 a\u0308 x"
    encoding = tokenizer.encode(text)
    starts = list(starts_in_text(encoding))
    assert starts[-1] == text.index("x") - (encoding.tokens[-1] != "x")
    spelt = list(starts_when_spelt(encoding.ids, Speller(tokenizer)))
    assert spelt[-1] == starts[-1] - 2  # of the shorter text


@pytest.mark.parametrize("trims", [True, False])
def test_tokens_set_around_a_text_take_no_room_and_spaces_belong_to_their_word(trims: bool) -> None:
    tokenizer = load()
    begin, end = ((name, tokenizer.token_to_id(name)) for name in ("<|im_start|>", "<|im_end|>"))
    around = processors.TemplateProcessing(
        single=f"{begin[0]} $A {end[0]}", special_tokens=[begin, end]
    )
    byte_level = processors.ByteLevel(trim_offsets=trims)
    tokenizer.post_processor = processors.Sequence([byte_level, around])
    text = "What is the colour of it"
    encoding = tokenizer.encode(text)
    starts = list(starts_in_text(encoding))
    assert (starts[0], starts[1], starts[-1]) == (0, 0, len(text))
    for token_id, start in zip(encoding.ids[1:-1], starts[1:-1], strict=True):
        word = Speller(tokenizer).spell(token_id).decode()
        assert text[start : start + len(word)] == word
