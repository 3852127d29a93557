"""Vocabularies in tiktoken's form, and text that is hard to split."""

import base64
import json
import random
from pathlib import Path
from typing import Any

import tiktoken
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

from gateway.prompts.letters import BYTES
from gateway.prompts.tiktoken_vocabulary import WORD_PATTERNS
from workers.families.kimi_k25 import markers

Ranks = dict[bytes, int]

KIND = "TikTokenTokenizer"
# As public checkpoints have them, counted from the first id behind the ranks. Ids between them
# are reserved, and the markers of calls and thoughts are not called special.
ADDED = {
    0: "[BOS]",
    1: "[EOS]",
    2: markers.TURN_END,
    3: markers.USER_TURN,
    4: markers.ASSISTANT_TURN,
    10: markers.SYSTEM_TURN,
    11: markers.CALLS_BEGIN,
    12: markers.CALLS_END,
    13: markers.CALL_BEGIN,
    14: markers.CALL_ARGUMENTS,
    15: markers.CALL_END,
    17: markers.MIDDLE,
    18: markers.MEDIA_BEGIN,
    19: markers.MEDIA_CONTENT,
    20: markers.MEDIA_END,
    21: markers.MEDIA_PAD,
    22: markers.THINK_BEGIN,
    23: markers.THINK_END,
}
NOT_SPECIAL = {*range(11, 16), 22, 23}

POOLS = (
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "中文字汉漢月之暗面々〇〆",
    "اللغةالعربية",
    "0123456789٠١٢½Ⅷ",
    "  \t\n\r\u00a0\u3000\u2028\x85\x0b",
    "'’s't're've'm'll'dſSK",
    "e\u0301\u0308\u20dd\u093f\ufe0f",
    "😀👩\u200d👧🏳🌈❤",
    '+-*/=<>(){}[]|_#;:.,!?\\"`~@$%^&',
    "ǅǈʰªº",
    "한국어かなカナกขабвΑΒγ",
)


def random_text(chance: random.Random, most: int = 40) -> str:
    """Short runs of letters, signs and spaces of many scripts; now and then of all Unicode."""
    length, text = chance.randint(0, most), ""
    while len(text) < length:
        if chance.random() < 0.1:
            number = chance.randrange(chance.choice((256, 0x3000, 0x110000)))
            text += chr(number) if not 0xD800 <= number < 0xE000 else ""
        else:
            text += "".join(chance.choices(chance.choice(POOLS), k=chance.randint(1, 6)))
    return text[:length]


def trained_ranks(size: int) -> Ranks:
    """What training finds in random text, as public vocabularies were made."""
    chance = random.Random(size)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERNS[KIND]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    words = [random_text(chance, 6) for _ in range(size // 4)]
    lines = (" ".join(chance.choices(words, k=20)) for _ in range(size // 4))
    tokenizer.train_from_iterator(lines, trainer)
    names = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    return {bytes(map(BYTES.__getitem__, name)): rank for name, rank in names}


def pair_ranks() -> Ranks:
    """Every two bytes are a token, in any order: hardly a border between words goes unnoticed."""
    pairs = [bytes((first, second)) for first in range(256) for second in range(256)]
    random.Random(0).shuffle(pairs)
    return {text: rank for rank, text in enumerate([*_singles(), *pairs])}


def short_ranks(seed: int) -> Ranks:
    """Short words of few letters in any order: no training finds such, tiktoken takes them."""
    chance = random.Random(seed)
    words = {"".join(chance.choices("abc", k=chance.randint(2, 5))).encode() for _ in range(40)}
    mixed = chance.sample(sorted(words), len(words))
    return {text: rank for rank, text in enumerate([*_singles(), *mixed])}


def _singles() -> list[bytes]:
    return [bytes((byte,)) for byte in range(256)]


def write_vocabulary(folder: Path, ranks: Ranks, **config: Any) -> None:
    """Write the two files of a vocabulary; `config` changes `tokenizer_config.json`."""
    lines = [base64.b64encode(text) + b" %d\n" % rank for text, rank in ranks.items()]
    (folder / "tiktoken.model").write_bytes(b"".join(lines))
    added = {
        str(len(ranks) + place): {"content": text, "special": place not in NOT_SPECIAL}
        for place, text in ADDED.items()
    }
    content = {"tokenizer_class": KIND, "added_tokens_decoder": added} | config
    (folder / "tokenizer_config.json").write_text(json.dumps(content), encoding="utf-8")


def reference(ranks: Ranks) -> tiktoken.Encoding:
    """The same vocabulary in the library that the form comes from."""
    special = {
        ADDED.get(place, f"<|reserved_token_{len(ranks) + place}|>"): len(ranks) + place
        for place in range(max(ADDED) + 1)
    }
    return tiktoken.Encoding(
        "reference",
        pat_str=WORD_PATTERNS[KIND],
        mergeable_ranks=ranks,
        special_tokens=special,
    )
