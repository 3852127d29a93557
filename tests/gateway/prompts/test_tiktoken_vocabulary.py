"""Converted vocabularies give the ids and the text that tiktoken itself gives."""

import base64
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiktoken
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from gateway.answers.spelling import Speller
from gateway.answers.text_stream import TextStream
from gateway.prompts import tiktoken_vocabulary
from gateway.prompts.checkpoint import Checkpoint, load_checkpoint
from gateway.prompts.letters import BYTES
from gateway.prompts.text import build
from gateway.prompts.tiktoken_vocabulary import WORD_PATTERNS, read_vocabulary
from tests.gateway.conversations import prompt_of
from tests.vocabularies import (
    ADDED,
    KIND,
    NOT_SPECIAL,
    Ranks,
    pair_ranks,
    random_text,
    reference,
    short_ranks,
    trained_ranks,
    write_vocabulary,
)
from workers.families import UnsupportedCheckpoint
from workers.families.answers import Words
from workers.families.kimi_k25 import markers

TEXTS = (
    "",
    "Hello, world! 你好，世界！",
    "中文English中文ENGLISH，第12345页，价格99.99元",
    "مرحبا بالعالم، كيف حالك؟",
    "e\u0301\u0308 नमस्ते ﬁ Ⅷ ½ ǅabc",
    "🦊👩‍👩‍👧‍👦❤️ 🏳️‍🌈",
    "   leading,  \t tabs\n\n\r\n  and   trailing   ",
    "def main(argument: int) -> None:\n    return {'it\\'s': 0x1F, \"we'Ll\": [1_000_000]}\n",
    "it's IT'S I'm they're we've she'll he'd ’s 'ſ",
    "1234567890 3.14 ٠١٢٣٤",
    "\u00a0\u2003\u3000\u0085\u2028 \x00\x1c\x1f",
)


def differences(ours: Tokenizer, theirs: tiktoken.Encoding, texts: list[str]) -> list[str]:
    """Texts whose ids differ, or do not lead back to them."""
    wrong = []
    for text in texts:
        ids = theirs.encode(text, disallowed_special=())
        if ours.encode(text).ids != ids or ours.decode(ids) != theirs.decode(ids) != text:
            wrong.append(text)
    return wrong


def converted(folder: Path, ranks: Ranks) -> Tokenizer:
    write_vocabulary(folder, ranks)
    return read_vocabulary(folder)


@pytest.fixture(scope="module")
def small() -> Ranks:
    return trained_ranks(1200)


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory, small: Ranks) -> Tokenizer:
    return converted(tmp_path_factory.mktemp("vocabulary"), small)


def test_ids_and_text_equal_tiktoken(vocabulary: Tokenizer, small: Ranks) -> None:
    chance = random.Random(1)
    texts = [*TEXTS, *(random_text(chance) for _ in range(300))]
    assert differences(vocabulary, reference(small), texts) == []
    assert vocabulary.decode(vocabulary.encode(TEXTS[2]).ids) == TEXTS[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make", [pair_ranks, lambda: trained_ranks(8000)], ids=["pairs", "trained"]
)
def test_ids_equal_tiktoken_on_many_random_texts(tmp_path: Path, make: Callable[[], Ranks]) -> None:
    ranks = make()
    chance = random.Random(2)
    texts = [random_text(chance) for _ in range(20_000)]
    assert differences(converted(tmp_path, ranks), reference(ranks), texts) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "put"),
    [
        pytest.param(r"&&[^\p{Han}]", "", id="Han among letters"),
        pytest.param(r"\p{M}", "", id="marks apart"),
        pytest.param("{1,3}", "{1,4}", id="longer numbers"),
        pytest.param(r"\s+(?!\S)|", "", id="spaces together"),
        pytest.param("(?i:'s|", "(?i:", id="one ending fewer"),
    ],
)
def test_control_other_words_give_other_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str, put: str
) -> None:
    ranks = pair_ranks()
    theirs = reference(ranks)
    changed = WORD_PATTERNS[KIND].replace(cut, put)
    assert changed != WORD_PATTERNS[KIND]
    monkeypatch.setattr(tiktoken_vocabulary, "WORD_PATTERNS", {KIND: changed})
    chance = random.Random(3)
    texts = [random_text(chance) for _ in range(3000)]
    assert len(differences(converted(tmp_path, ranks), theirs, texts)) > 3


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_no_training_gives_are_merged_as_tiktoken_does(
    tmp_path: Path, seed: int
) -> None:
    ranks = short_ranks(seed)
    chance = random.Random(seed)
    texts = ["".join(chance.choices("abc", k=chance.randint(1, 24))) for _ in range(300)]
    assert differences(converted(tmp_path, ranks), reference(ranks), texts) == []


def test_control_one_way_to_split_a_token_is_not_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = tiktoken_vocabulary._merges

    def first_only(ranks: Ranks) -> list[tuple[bytes, bytes]]:
        return list({left + right: (left, right) for left, right in every(ranks)}.values())

    monkeypatch.setattr(tiktoken_vocabulary, "_merges", first_only)
    ranks = short_ranks(0)
    chance = random.Random(0)
    texts = ["".join(chance.choices("abc", k=20)) for _ in range(300)]
    assert differences(converted(tmp_path, ranks), reference(ranks), texts) != []


def test_added_tokens_keep_their_ids_and_flags(vocabulary: Tokenizer, small: Ranks) -> None:
    added = vocabulary.get_added_tokens_decoder()
    assert sorted(added) == list(range(len(small), len(small) + max(ADDED) + 1))
    for place, text in ADDED.items():
        token = added[len(small) + place]
        assert (token.content, token.special) == (text, place not in NOT_SPECIAL)
    assert added[len(small) + 5].content == f"<|reserved_token_{len(small) + 5}|>"


def test_added_tokens_are_found_as_tiktoken_finds_them(vocabulary: Tokenizer, small: Ranks) -> None:
    names = [*ADDED.values(), f"<|reserved_token_{len(small) + 9}|>", "<|im_en", "<think"]
    chance, theirs = random.Random(4), reference(small)
    for _ in range(100):
        pieces = (chance.choice(names) + random_text(chance, 3) for _ in range(6))
        text = "".join(pieces)
        expected = theirs.encode(text, allowed_special="all")
        assert vocabulary.encode(text).ids == expected
        assert vocabulary.decode(expected, skip_special_tokens=False) == text


@pytest.mark.slow
def test_a_vocabulary_of_public_size_converts_in_seconds(tmp_path: Path) -> None:
    ranks = trained_ranks(1200)
    chance, texts = random.Random(5), list(ranks)
    while len(ranks) < 163_584:
        text = chance.choice(texts) + chance.choice(texts)
        ranks.setdefault(text, len(ranks))
    write_vocabulary(tmp_path, ranks)
    start = time.perf_counter()
    vocabulary = read_vocabulary(tmp_path)
    assert time.perf_counter() - start < 15
    assert vocabulary.token_to_id(markers.TURN_END) == 163_586
    assert vocabulary.token_to_id(markers.MEDIA_PAD) == 163_605


def demo_folder(folder: Path) -> Path:
    """The demo model's configuration with a vocabulary of 760 ranks, then 8 of its tokens."""
    for name in ("config.json", "preprocessor_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((DEMO_MODEL / name).read_bytes())
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    names = sorted(tokenizer.get_vocab(with_added_tokens=False).items(), key=lambda pair: pair[1])
    ranks = {bytes(map(BYTES.__getitem__, name)): rank for name, rank in names}
    added = {
        str(index): {"content": token.content, "special": index != 763}
        for index, token in tokenizer.get_added_tokens_decoder().items()
    }
    added["769"] = {"content": markers.CALLS_BEGIN, "special": False}
    write_vocabulary(folder, ranks, added_tokens_decoder=added)
    return folder


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return load_checkpoint(demo_folder(tmp_path))


def test_every_added_token_is_structure(checkpoint: Checkpoint) -> None:
    assert checkpoint.control.ids == frozenset(range(760, 770))
    for control_id in checkpoint.control.ids:
        spelling = checkpoint.tokenizer.id_to_token(control_id)
        prompt = prompt_of([{"role": "user", "content": f"a{spelling} b"}])
        ids = np.frombuffer(build(prompt, [], checkpoint, 4096).token_ids, "<i4").tolist()
        plain = prompt_of([{"role": "user", "content": "a b"}])
        before = np.frombuffer(build(plain, [], checkpoint, 4096).token_ids, "<i4").tolist()
        control = checkpoint.control.ids
        assert [each for each in ids if each in control] == [
            each for each in before if each in control
        ]
        assert f"a{spelling} b" in checkpoint.tokenizer.decode(ids, skip_special_tokens=False)


def test_answers_tell_the_markers_that_are_not_special(checkpoint: Checkpoint) -> None:
    stream = TextStream(Speller(checkpoint.tokenizer), ())
    ids = [769, *checkpoint.tokenizer.encode("é").ids, 762, 768]
    events = stream.push(ids) + stream.finish()
    assert events == [Words(markers.CALLS_BEGIN, 0), Words("é", len(markers.CALLS_BEGIN))]


def test_tokenizer_json_is_preferred(tmp_path: Path) -> None:
    demo_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((DEMO_MODEL / "tokenizer.json").read_bytes())
    assert max(load_checkpoint(tmp_path).control.ids) == 767


def test_other_tokenizer_classes_are_refused(tmp_path: Path, small: Ranks) -> None:
    write_vocabulary(tmp_path, small, tokenizer_class="GPT2Tokenizer")
    with pytest.raises(UnsupportedCheckpoint, match=r"'GPT2Tokenizer'.*TikTokenTokenizer"):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda lines: lines[1:], id="a byte without rank"),
        pytest.param(lambda lines: [*lines, lines[0]], id="a line twice"),
        pytest.param(lambda lines: [*lines, b"YWJj 9999"], id="a rank too high"),
        pytest.param(lambda lines: [*lines, b"YWJj"], id="no rank"),
        pytest.param(lambda lines: [*lines, b"YWJj x"], id="no number"),
        pytest.param(lambda lines: [*lines, b"Y!Jj 256"], id="no base64"),
    ],
)
def test_broken_rank_files_are_refused(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]]
) -> None:
    write_vocabulary(tmp_path, {bytes((byte,)): byte for byte in range(256)})
    path = tmp_path / "tiktoken.model"
    path.write_bytes(b"\n".join(damage(path.read_bytes().splitlines())))
    with pytest.raises(UnsupportedCheckpoint, match=r"tiktoken\.model"):
        read_vocabulary(tmp_path)


@pytest.mark.parametrize(
    "added",
    [
        {"5": {"content": "<a>"}},
        {"258": {"content": "<a>"}, "256": {"content": "<a>"}},
        {"256": {"content": "a"}},
        {"256": {"special": True}},
        {"x": {"content": "<a>"}},
        {"256": "<a>"},
        ["<a>"],
    ],
)
def test_added_tokens_that_cannot_have_their_ids_are_refused(tmp_path: Path, added: Any) -> None:
    ranks = {bytes((byte,)): byte for byte in range(256)}
    write_vocabulary(tmp_path, ranks, added_tokens_decoder=added)
    with pytest.raises(UnsupportedCheckpoint, match=r"added"):
        read_vocabulary(tmp_path)


def test_form_of_the_written_file(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, {b"\xff\x00": 0})
    line = (tmp_path / "tiktoken.model").read_bytes()
    assert line == base64.b64encode(b"\xff\x00") + b" 0\n"
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["tokenizer_class"] == KIND
