"""A vocabulary in tiktoken's form in, the same vocabulary as a `Tokenizer` out.

`tiktoken.model` lists byte strings by rank and nothing else. How text is split into words before
is told by the tokenizer class that `tokenizer_config.json` names, and control tokens by its
`added_tokens_decoder`.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from gateway.prompts.letters import LETTERS
from workers.families import UnsupportedCheckpoint, read_json

FILE_NAME = "tiktoken.model"

# Letters of scripts that are not Han, in a case that may begin a word or may end one.
_BEGIN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_END = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"  # one space or sign goes with the word behind it
_AFTER = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
_KIMI_WORDS = "|".join(
    [
        r"[\p{Han}]+",
        f"{_BEFORE}{_BEGIN}*{_END}+{_AFTER}",
        f"{_BEFORE}{_BEGIN}+{_END}*{_AFTER}",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
WORD_PATTERNS: Mapping[str, str] = {"TikTokenTokenizer": _KIMI_WORDS}  # by tokenizer class

_Ranks = dict[bytes, int]


def read_vocabulary(model: Path) -> Tokenizer:
    """Convert the vocabulary of the checkpoint at `model`; every id stays what it is.

    All added tokens are found in text, as tiktoken finds them when it is allowed to; ids between
    them that have no name get the one that checkpoints of this kind give to reserved ids.

    Raises:
        UnsupportedCheckpoint: a file is missing or broken, or the tokenizer class is unknown.
    """
    config = read_json(model / "tokenizer_config.json")
    kind = str(config.get("tokenizer_class"))
    if kind not in WORD_PATTERNS:
        known = ", ".join(WORD_PATTERNS)
        raise UnsupportedCheckpoint(
            f"{model}: tokenizer class {kind!r} with {FILE_NAME} is not supported; "
            f"supported is {known}"
        )
    path = model / FILE_NAME
    ranks = _read_ranks(path)
    names = {text: _spell(text) for text in ranks}
    vocabulary = {names[text]: rank for text, rank in ranks.items()}
    merges = [(names[left], names[right]) for left, right in _merges(ranks)]
    # A word that is a token as a whole is that token, even where merging would not lead to it.
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORD_PATTERNS[kind]), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    _add_tokens(tokenizer, config.get("added_tokens_decoder") or {}, len(ranks), model)
    return tokenizer


def _read_ranks(path: Path) -> _Ranks:
    """Byte strings by rank; ranks count from 0 and every single byte has one."""
    try:
        lines = path.read_bytes().split(b"\n")
        pairs = [line.split() for line in lines if line.strip()]
        ranks = {base64.b64decode(text, validate=True): int(rank) for text, rank in pairs}
    except (OSError, ValueError, binascii.Error) as error:
        raise UnsupportedCheckpoint(f"cannot read {path}: {error}") from error
    is_complete = all(bytes([byte]) in ranks for byte in range(256))
    if not is_complete or sorted(ranks.values()) != list(range(len(pairs))):
        raise UnsupportedCheckpoint(f"{path}: ranks are missing or doubled, or a byte has none")
    return ranks


def _spell(text: bytes) -> str:
    return "".join(map(LETTERS.__getitem__, text))


def _merges(ranks: _Ranks) -> Iterator[tuple[bytes, bytes]]:
    """Pairs to join, first ones first.

    tiktoken joins any two neighbours that make a token, lowest rank first. So every way to split
    a token into two is a merge, not only the one that training found.
    """
    for text in sorted(ranks, key=ranks.__getitem__):
        for middle in range(1, len(text)):
            left, right = text[:middle], text[middle:]
            if left in ranks and right in ranks:
                yield left, right


def _add_tokens(tokenizer: Tokenizer, added: dict[str, Any], first: int, model: Path) -> None:
    """Add tokens under the ids that the configuration gives them, `first` and onwards."""
    try:
        tokens = {int(index): entry for index, entry in added.items()}
        contents = {index: str(entry["content"]) for index, entry in tokens.items()}
        special = {index: bool(entry.get("special", True)) for index, entry in tokens.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UnsupportedCheckpoint(f"{model}: added_tokens_decoder is broken: {error}") from error
    wanted = range(first, max(tokens, default=first - 1) + 1)
    tokenizer.add_tokens(
        [
            AddedToken(
                contents.get(index, f"<|reserved_token_{index}|>"),
                special=special.get(index, True),
                normalized=False,
            )
            for index in wanted
        ]
    )
    for index, content in contents.items():
        if tokenizer.token_to_id(content) != index:
            raise UnsupportedCheckpoint(
                f"{model}: added token {content!r} cannot have the id {index}"
            )
