"""Checkpoints that recite: real models whose weights were chosen so that they say given texts.

Attention and MLP add nothing, so that the last token alone decides the next. A text is cut into
words that the vocabulary gets for it, none of them twice; each leads to the one behind it. All
texts begin behind the last token of a prompt: a request's `logit_bias` chooses one.
"""

import itertools
import json
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer

from gateway.prompts.letters import LETTERS
from tests.checkpoints import make_checkpoint

VOCABULARY = 2048
_SCALE = 4.0  # the right token's logit is about 8 times that, others' at most two thirds of it
_BIAS = 5.0


@dataclass(frozen=True)
class Reciter:
    """A checkpoint's folder, and how its texts are asked for."""

    path: Path
    first_tokens: Mapping[str, int]
    words: Mapping[str, Sequence[str]]  # of a text, in the letters of bytes; the last ends it

    def num_tokens(self, name: str) -> int:
        """Tokens of an answer with this text, with the one that ends it."""
        return len(self.words[name])

    def say(self, name: str) -> dict[str, Any]:
        """The fields of a request that is answered with this text."""
        return {"logit_bias": {str(self.first_tokens[name]): _BIAS}, "temperature": 0}


def make_reciter(
    folder: Path,
    model_type: str,
    texts: Mapping[str, str],
    *,
    template: str,
    tokens: Sequence[str] = (),
    prompt_end: str = "\n",
) -> Reciter:
    """Write a checkpoint of `model_type` below `folder` that says these texts.

    Args:
        folder: where its own folder is made.
        model_type: one of `tests.checkpoints`.
        texts: by name. They may hold each of `tokens` once in all.
        template: its chat template.
        tokens: markers that are tokens of the vocabulary and not special.
        prompt_end: text whose last token ends every prompt.
    """
    path = make_checkpoint(folder, model_type)
    (path / "chat_template.jinja").write_text(template, encoding="utf-8")
    tokenizer = _add_tokens(path, tokens)
    begin = tokenizer.encode(prompt_end, add_special_tokens=False).ids[-1]
    used = {tokenizer.id_to_token(begin) or ""}
    words = {name: list(_cut(text, tokens, used)) for name, text in texts.items()}
    ids = _add_words(path, [word for each in words.values() for word in each], tokenizer)
    chains = {name: [ids[word] for word in each] for name, each in words.items()}
    _write_weights(path, [[begin, *chain] for chain in chains.values()])
    _write_ends(path, [chain[-1] for chain in chains.values()])
    return Reciter(
        path,
        first_tokens={name: chain[0] for name, chain in chains.items()},
        words=words,
    )


def _add_tokens(path: Path, tokens: Sequence[str]) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path / "tokenizer.json"))
    tokenizer.add_tokens(list(tokens))
    tokenizer.save(str(path / "tokenizer.json"))
    return tokenizer


def _cut(text: str, tokens: Sequence[str], used: set[str]) -> Iterator[str]:
    """The text as tokens, and as words that were not used before; one that ends it comes last."""
    pattern = "|".join(f"({re.escape(token)})" for token in tokens) or "(?!)"
    for piece in filter(None, re.split(pattern, text)):
        if piece in tokens:
            assert piece not in used, f"{piece} leads to two places"
            used.add(piece)
            yield piece
        else:
            yield from _new_words(piece.encode(), used)
    used.add(f"end {len(used)}")
    yield f"end {len(used) - 1}"


def _new_words(data: bytes, used: set[str]) -> list[str]:
    """Byte-level words, cut anywhere, characters included."""
    letters, chance = "".join(LETTERS[byte] for byte in data), random.Random(data)
    for _ in range(100):
        words: list[str] = []
        place = 0
        while place < len(letters):
            ends = range(place + chance.randint(1, 4), len(letters) + 1)
            new = (letters[place:end] for end in ends if letters[place:end] not in used)
            word = next((each for each in new if each not in words), None)
            if word is None:
                break
            words.append(word)
            place += len(word)
        else:
            used.update(words)
            return words
    raise AssertionError(f"{letters!r} has no words that are new")


def _add_words(path: Path, words: Sequence[str], tokenizer: Tokenizer) -> dict[str, int]:
    """Put words into the vocabulary that no merge makes, so that no prompt holds them."""
    vocabulary = tokenizer.get_vocab()
    content = json.loads((path / "tokenizer.json").read_text())
    new = [word for word in words if word not in vocabulary]
    first = max(vocabulary.values()) + 1
    # Added tokens keep their ids only if the vocabulary holds them, too.
    vocabulary |= {word: first + at for at, word in enumerate(new)}
    content["model"]["vocab"] = vocabulary
    assert first + len(new) <= VOCABULARY
    (path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return vocabulary


def _write_weights(path: Path, chains: Sequence[Sequence[int]]) -> None:
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    model.resize_token_embeddings(VOCABULARY, mean_resizing=False)
    embedding, head = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_text = "language_model" in name
            if is_text and name.endswith(
                ("o_proj.weight", "down_proj.weight", "experts.down_proj")
            ):
                weight.zero_()
        directions = torch.nn.functional.normalize(
            torch.randn(embedding.shape, generator=generator), dim=-1
        )
        embedding.copy_(directions)
        head.zero_()
        for chain in chains:
            for token, following in itertools.pairwise(chain):
                head[following] = _SCALE * directions[token]
    for file in path.glob("*.safetensors*"):
        file.unlink()
    model.save_pretrained(path, max_shard_size="1GB")


def _write_ends(path: Path, ends: Sequence[int]) -> None:
    file = path / "generation_config.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps(content | {"eos_token_id": [762, *ends]}), encoding="utf-8")
