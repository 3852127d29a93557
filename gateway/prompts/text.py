"""Prompt and plans in, token ids out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from tokenizers import Encoding

from gateway.errors import BadRequest, PromptTooLong
from gateway.prompts.checkpoint import Checkpoint
from gateway.prompts.marks import without_forgeries
from gateway.prompts.prompt import Prompt, Raw, RawText, RawTokens
from gateway.prompts.render import render
from gateway.prompts.sampling import UNCAPPED_TOKENS
from gateway.prompts.token_starts import starts_in_text, starts_when_spelt
from workers.families.plan import ImagePlan
from workers.sampling import Sampling

# A rendered prompt with more characters than this for each token of context is looked at from
# its beginning first: most are refused there, without paying for the rest.
LONG_CHARACTERS_PER_TOKEN = 16
# The longest words of vocabularies in use; no text consists of nothing else.
MOST_CHARACTERS_PER_TOKEN = 128

Ids = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """A prompt as the engine takes it."""

    token_ids: bytes  # int32, little endian; each image's placeholder stands num_tokens times
    num_tokens: int
    image_starts: tuple[int, ...]  # by image index: its first token
    sampling: Sampling  # an open max_tokens is what the context has left; with the grammar
    in_thought: bool  # whether the answer begins within a thought
    starts: Sequence[int] = ()  # by token, its first character; if the prompt itself is told of


@dataclass(frozen=True, slots=True)
class _Written:
    """A prompt in which an image is one placeholder."""

    ids: Sequence[int]
    in_thought: bool = False
    starts: Sequence[int] = ()


def build(
    prompt: Prompt, plans: Sequence[ImagePlan], checkpoint: Checkpoint, max_context_tokens: int
) -> PromptTokens:
    """Render, encode and expand a prompt. Takes CPU time: run it in a thread.

    An answer whose length the caller left open may take what the prompt leaves of the context.

    Args:
        prompt: the request.
        plans: one for each image, by image index.
        checkpoint: the checkpoint that is served.
        max_context_tokens: longest prompt plus answer.

    Raises:
        PromptTooLong: prompt and answer do not fit into the context.
        BadRequest: the chat template refuses the messages or leaves an image out.
    """
    num_image_tokens = sum(plan.num_tokens for plan in plans)
    limit = _Limit(max_context_tokens, prompt.sampling.max_tokens, num_image_tokens)
    _refuse_hopeless(prompt, limit)
    written = _write(prompt, checkpoint, limit)
    ids = np.array(written.ids, dtype=np.int32)
    limit.check(len(ids) - len(plans) + num_image_tokens)
    if prompt.raw is not None:
        _check_raw(ids, checkpoint.image_token_id)
    ids, starts = _expand(ids, plans, checkpoint.image_token_id)
    max_tokens = min(prompt.sampling.max_tokens, max_context_tokens - len(ids))
    return PromptTokens(
        token_ids=ids.astype("<i4").tobytes(),
        num_tokens=len(ids),
        image_starts=starts,
        sampling=msgspec.structs.replace(
            prompt.sampling,
            max_tokens=max_tokens,
            grammar=prompt.grammar.text(checkpoint, written.in_thought) if prompt.grammar else "",
        ),
        in_thought=written.in_thought,
        starts=written.starts,
    )


def refuse_hopeless(prompt: Prompt, max_context_tokens: int) -> None:
    """Refuse a prompt that will not fit whatever its images are; costs next to nothing.

    Raises:
        PromptTooLong: prompt and answer do not fit into the context.
    """
    _refuse_hopeless(prompt, _Limit(max_context_tokens, prompt.sampling.max_tokens, 0))


def _write(prompt: Prompt, checkpoint: Checkpoint, limit: "_Limit") -> _Written:
    if prompt.raw is not None:
        return _write_raw(prompt.raw, checkpoint, limit, prompt.sampling.prompt_logprobs)
    rendered = render(prompt, checkpoint)
    _refuse_long(rendered.text, checkpoint, limit)
    encoding = _tokenize(rendered.text, checkpoint)
    in_thought = checkpoint.answer_form.opens_thought(rendered.text)
    return _Written(without_forgeries(encoding, rendered, checkpoint), in_thought)


def _write_raw(raw: Raw, checkpoint: Checkpoint, limit: "_Limit", is_placed: bool) -> _Written:
    """A prompt that stands for itself; `is_placed` asks for the places of its tokens."""
    if isinstance(raw, RawTokens):
        limit.check(len(raw.token_ids))
        spelt = starts_when_spelt(raw.token_ids, checkpoint.speller) if is_placed else ()
        return _Written(raw.token_ids, starts=tuple(spelt))
    _refuse_long(raw.text, checkpoint, limit)
    encoding = _encode(raw.text, checkpoint, add_special_tokens=raw.add_special_tokens)
    return _Written(encoding.ids, starts=tuple(starts_in_text(encoding)) if is_placed else ())


def _check_raw(ids: Ids, image_token_id: int) -> None:
    num_places = int(np.count_nonzero(ids == image_token_id))
    if num_places:
        raise BadRequest(
            f"the prompt has {num_places} image placeholders and 0 images; images are taken by "
            "/v1/chat/completions",
            param="messages",
        )
    if not len(ids):
        raise BadRequest("the prompt has no tokens", param="messages")


@dataclass(frozen=True, slots=True)
class _Limit:
    context: int
    max_tokens: int  # of the answer
    num_image_tokens: int

    def check(self, num_tokens: int, known: str = "") -> None:
        """Refuse a prompt of `num_tokens`, images included, that leaves no room to answer."""
        is_open = self.max_tokens == UNCAPPED_TOKENS
        if num_tokens + (1 if is_open else self.max_tokens) <= self.context:
            return
        images = f", {self.num_image_tokens} of them for images" if self.num_image_tokens else ""
        wish = "" if is_open else f", and up to {self.max_tokens} are asked for the answer"
        raise PromptTooLong(
            f"the prompt has {known}{num_tokens} tokens{images}{wish}; prompt and answer together "
            f"can have {self.context}"
        )


def _refuse_hopeless(prompt: Prompt, limit: _Limit) -> None:
    """Refuse what cannot fit before any work is done on it; a turn takes at least a token."""
    texts = [part for turn in prompt.turns for part in turn.parts if isinstance(part, str)]
    if isinstance(prompt.raw, RawText):
        texts.append(prompt.raw.text)
    least = sum(map(len, texts)) // MOST_CHARACTERS_PER_TOKEN
    limit.check(limit.num_image_tokens + max(least, len(prompt.turns)), "at least ")


def _refuse_long(text: str, checkpoint: Checkpoint, limit: _Limit) -> None:
    num_characters = LONG_CHARACTERS_PER_TOKEN * limit.context
    if len(text) <= num_characters:
        return
    head = _tokenize(text[:num_characters], checkpoint)
    # The cut may change how its neighbourhood is split, so the head must not fit by far.
    if len(head.ids) > 2 * limit.context:
        limit.check(limit.num_image_tokens + len(head.ids), "more than ")


def _tokenize(text: str, checkpoint: Checkpoint) -> Encoding:
    begin = checkpoint.template.special_tokens.get("bos_token")
    has_begun = begin is not None and text.startswith(begin)
    return _encode(text, checkpoint, add_special_tokens=not has_begun)


def _encode(text: str, checkpoint: Checkpoint, *, add_special_tokens: bool) -> Encoding:
    try:
        return checkpoint.tokenizer.encode(text, add_special_tokens=add_special_tokens)
    except TypeError as error:
        raise BadRequest("a message is no valid Unicode text", param="messages") from error


def _expand(
    ids: Ids, plans: Sequence[ImagePlan], image_token_id: int
) -> tuple[Ids, tuple[int, ...]]:
    """Repeat each image's placeholder; gives the ids and each image's first token."""
    places = np.flatnonzero(ids == image_token_id)
    if len(places) != len(plans):
        raise BadRequest(
            f"the model's chat template shows {len(places)} of the {len(plans)} images; "
            "it may take none in a message of this role",
            param="messages",
        )
    counts = np.array([plan.num_tokens for plan in plans], dtype=np.int64)
    repeats = np.ones(len(ids), dtype=np.int64)
    repeats[places] = counts
    starts = places + np.cumsum(counts) - counts - np.arange(len(plans))
    return np.repeat(ids, repeats), tuple(starts.tolist())
