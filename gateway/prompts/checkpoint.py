"""What the gateway needs of a Hugging Face checkpoint folder: folder in, `Checkpoint` out.

Reads configuration, tokenizer and chat template; never the weights.
"""

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel

from gateway.answers.spelling import Speller
from gateway.prompts.control_tokens import ControlTokens, control_tokens
from gateway.prompts.sampling import SamplingDefaults
from gateway.prompts.template import ChatTemplate, compile_template
from gateway.prompts.tiktoken_vocabulary import FILE_NAME, read_vocabulary
from gateway.schemas.sampling_schema import LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY
from workers.families import (
    Layout,
    UnsupportedCheckpoint,
    load_answer_form,
    load_layout,
    read_json,
)
from workers.families.answers import AnswerForm
from workers.messages import Vocabulary

log = logging.getLogger(__name__)

TOKENIZER_FILE = "tokenizer.json"
# Least and most, of numbers that checkpoints give; others are not negative.
_RANGES = {
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repetition_penalty": (LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY),
}
NAMED_TOKENS = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The text side of one checkpoint, read once at start.

    `control` are the tokens that give a prompt its structure: those that the tokenizer holds for
    special, and those that the configuration names, such as image placeholders; in tiktoken's
    form every added token. A caller's text never becomes one of them. What tools tell, and what
    they were asked, comes from strangers: it becomes none of `foreign`, which holds as well the
    added tokens that the chat template writes, such as those around calls and results.
    """

    tokenizer: Tokenizer
    speller: Speller
    template: ChatTemplate
    answer_form: AnswerForm
    layout: Layout
    image_token_id: int  # of the placeholder that stands for an image in a rendered template
    sampling_defaults: SamplingDefaults
    control: ControlTokens
    foreign: ControlTokens

    def vocabulary(self) -> Vocabulary:
        """How tokens are spelt; added ones and those that end an answer are no text."""
        ids = range(1 + max(self.tokenizer.get_vocab().values()))
        ends = self.sampling_defaults.eos_token_ids
        added = self.tokenizer.get_added_tokens_decoder()
        return Vocabulary(tuple(map(self.speller.spell, ids)), tuple({*added, *ends}))


def load_checkpoint(model: Path) -> Checkpoint:
    """Read the checkpoint at `model`, a folder in Hugging Face form.

    Raises:
        UnsupportedCheckpoint: a file is missing or holds something that is not served.
    """
    layout = load_layout(model)
    config = read_json(model / "config.json")
    generation = _read_optional(model / "generation_config.json")
    sections = (generation, config, config.get("text_config") or {})
    named, unnamed = _read_special_tokens(model)
    is_tiktoken = not (model / TOKENIZER_FILE).exists() and (model / FILE_NAME).exists()
    tokenizer = read_vocabulary(model) if is_tiktoken else _read_tokenizer(model)
    _mark_special(tokenizer, [*named.values(), *unnamed])
    _check_special(tokenizer, model)
    added = tokenizer.get_added_tokens_decoder()
    image_token_id = _image_token_id(model, layout, tokenizer)
    template = _read_template(model)
    control = {image_token_id, *_named_ids(config)} & added.keys()
    control |= {index for index, token in added.items() if token.special or is_tiktoken}
    written = {index for index, token in added.items() if token.content.strip() in template}
    return Checkpoint(
        tokenizer=tokenizer,
        speller=Speller(tokenizer),
        template=compile_template(template, named),
        answer_form=load_answer_form(model, template),
        layout=layout,
        image_token_id=image_token_id,
        sampling_defaults=_sampling_defaults(
            generation, _end_ids(sections, tokenizer, named.get("eos_token"))
        ),
        control=control_tokens({index: added[index].content for index in control}),
        foreign=control_tokens({index: added[index].content for index in control | written}),
    )


def _image_token_id(model: Path, layout: Layout, tokenizer: Tokenizer) -> int:
    """The placeholder's id: the tokenizer's own, for it turns templates' texts into ids."""
    added = tokenizer.get_added_tokens_decoder()
    own, named = tokenizer.token_to_id(layout.image_token), layout.image_token_id
    if own not in added:
        if named not in added:
            raise UnsupportedCheckpoint(f"{model}: the tokenizer has no token for images")
        return named
    if own != named:
        log.warning(
            "%s: config.json names token %d for images, the tokenizer has %s as %d, which counts",
            model,
            named,
            layout.image_token,
            own,
        )
    return int(own)


def _read_optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _read_tokenizer(model: Path) -> Tokenizer:
    path = model / TOKENIZER_FILE
    if not path.exists():
        raise UnsupportedCheckpoint(
            f"{model}: no {TOKENIZER_FILE} and no {FILE_NAME}; other forms are not supported"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise UnsupportedCheckpoint(f"cannot read {path}: {error}") from error
    # Answers are put together from bytes, which these decoders write as letters.
    if not isinstance(tokenizer.decoder, ByteLevel):
        raise UnsupportedCheckpoint(f"{path}: only byte-level decoders are supported")
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def _mark_special(tokenizer: Tokenizer, special: Sequence[str]) -> None:
    """Hold for special what tokenizer_config.json calls so, though tokenizer.json does not."""
    added = {token.content: token for token in tokenizer.get_added_tokens_decoder().values()}
    for text in special:
        token = added.get(text, AddedToken(text, normalized=False))
        if not token.special and tokenizer.token_to_id(text) is not None:
            token.special = True
            tokenizer.add_special_tokens([token])


def _check_special(tokenizer: Tokenizer, model: Path) -> None:
    for token in tokenizer.get_added_tokens_decoder().values():
        if token.special and token.normalized and tokenizer.normalizer is not None:
            # Other spellings of it would be found as well, and a caller could write those.
            raise UnsupportedCheckpoint(f"{model}: token {token.content!r} is normalised")


def _read_special_tokens(model: Path) -> tuple[dict[str, str], list[str]]:
    """Special tokens that have a name (`eos_token`), and those that have none."""
    config = _read_optional(model / "special_tokens_map.json")
    config |= _read_optional(model / "tokenizer_config.json")
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    named = {name: _spelling(config[name]) for name in NAMED_TOKENS if config.get(name)}
    return named, [
        _spelling(token) for token in (extra.values() if isinstance(extra, dict) else extra)
    ]


def _spelling(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)


def _named_ids(config: dict[str, Any]) -> Iterator[int]:
    """Ids that the configuration names at its top level, for example `vision_start_token_id`."""
    for name, value in config.items():
        if name.endswith("_token_id") and isinstance(value, int):
            yield value


def _read_template(model: Path) -> str:
    """Source of the chat template, from the first place that has one.

    Raises:
        UnsupportedCheckpoint: none has.
    """
    plain = model / "chat_template.jinja"
    if plain.exists():
        return plain.read_text(encoding="utf-8")
    for name in ("chat_template.json", "tokenizer_config.json"):
        template = _read_optional(model / name).get("chat_template")
        if isinstance(template, list):  # several, by name
            template = {entry["name"]: entry["template"] for entry in template}.get("default")
        if isinstance(template, str):
            return template
    raise UnsupportedCheckpoint(f"{model}: no chat template")


def _sampling_defaults(generation: dict[str, Any], end_ids: tuple[int, ...]) -> SamplingDefaults:
    """How to sample when the caller does not say.

    Greedy unless the checkpoint asks for sampling (`do_sample`); then its own numbers, and what
    it does not name is off. Its repetition penalty applies either way, as in transformers.
    """
    penalty = _number(generation, "repetition_penalty", 1.0)
    if not generation.get("do_sample"):
        return SamplingDefaults(0.0, 1.0, 0, end_ids, repetition_penalty=penalty)
    return SamplingDefaults(
        temperature=_number(generation, "temperature", 1.0),
        top_p=_number(generation, "top_p", 1.0),
        top_k=int(_number(generation, "top_k", 0)),
        eos_token_ids=end_ids,
        min_p=_number(generation, "min_p", 0.0),
        repetition_penalty=penalty,
    )


def _number(generation: dict[str, Any], name: str, default: float) -> float:
    value = generation.get(name)
    if value is None:
        return default
    least, most = _RANGES.get(name, (0.0, math.inf))
    if not isinstance(value, int | float) or not least <= value <= most:
        raise UnsupportedCheckpoint(f"generation_config.json: {name} {value!r} is out of range")
    return float(value)


def _end_ids(
    sections: Sequence[dict[str, Any]], tokenizer: Tokenizer, end_token: str | None
) -> tuple[int, ...]:
    """Tokens that end an answer, from the first place that names any; none if no place does."""
    named = (section.get("eos_token_id") for section in sections)
    value = next((value for value in named if value is not None), None)
    if value is None and end_token is not None:
        value = tokenizer.token_to_id(end_token)
    ids = value if isinstance(value, list) else [] if value is None else [value]
    tokens = range(tokenizer.get_vocab_size())
    if not all(isinstance(index, int) and index in tokens for index in ids):
        raise UnsupportedCheckpoint(f"eos_token_id {value!r} is not among the tokenizer's tokens")
    return tuple(ids)
