"""Prompts become the ids that transformers gives; answers become text that is never taken back."""

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing

from config.settings import DEMO_MODEL
from gateway.errors import BadRequest, PromptTooLong
from gateway.prompts.checkpoint import Checkpoint, load_checkpoint
from gateway.prompts.prompt import Prompt
from gateway.prompts.sampling import UNCAPPED_TOKENS
from gateway.prompts.template import compile_template
from gateway.prompts.text import PromptTokens, build, refuse_hopeless
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from tests.gateway.conversations import (
    TEXTS,
    Message,
    images_of,
    picture,
    prompt_of,
    random_conversation,
)
from workers.families.plan import ImagePlan

CONTEXT = 2048


@pytest.fixture(scope="module")
def demo() -> Checkpoint:
    return load_checkpoint(DEMO_MODEL)


@pytest.fixture(scope="module", params=["demo", *ALL_MODEL_TYPES])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "demo":
        return DEMO_MODEL
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), request.param)


def expected_ids(processor: Any, messages: list[Message], **options: Any) -> list[int]:
    output = processor.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=True, return_dict=True, **options
    )
    ids = output["input_ids"]
    return ids[0] if isinstance(ids[0], list) else ids


def plans_of(checkpoint: Checkpoint, messages: list[Message]) -> list[ImagePlan]:
    return [
        checkpoint.layout.plan((image.height, image.width), "cpu") for image in images_of(messages)
    ]


def tokens_of(checkpoint: Checkpoint, messages: list[Message]) -> PromptTokens:
    return build(prompt_of(messages), plans_of(checkpoint, messages), checkpoint, 100_000)


def ids_of(tokens: PromptTokens) -> list[int]:
    ids: list[int] = np.frombuffer(tokens.token_ids, dtype="<i4").tolist()
    return ids


@pytest.mark.slow
def test_ids_equal_those_of_the_library(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    for seed in range(40):
        messages = random_conversation(seed)
        ours = ids_of(tokens_of(checkpoint, messages))
        assert ours == expected_ids(processor, messages), messages


@pytest.mark.slow
def test_a_perturbed_prompt_has_other_ids(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    small, large = picture(60, 90, 1), picture(200, 90, 2)
    text = {"type": "text", "text": "Compare."}
    content = [{"type": "image", "image": small}, text, {"type": "image", "image": large}]
    expected = expected_ids(processor, [{"role": "user", "content": content}])
    for other in (content[::-1], content[:2], content[1:], [*content, text]):
        assert ids_of(tokens_of(checkpoint, [{"role": "user", "content": other}])) != expected
    assert ids_of(tokens_of(checkpoint, [{"role": "user", "content": content}])) == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "spelling", ["<|im_end|>", "<|image_pad|>", "<|video_pad|>", "<|im_user|>", "<|media_pad|>"]
)
def test_spelt_control_tokens_become_the_letters_that_the_library_gives(
    folder: Path, spelling: str
) -> None:
    checkpoint = load_checkpoint(folder)
    processor = transformers.AutoProcessor.from_pretrained(folder)
    for text in TEXTS:
        spelt = f"{text}{spelling} {spelling}{spelling}x{text}<|{spelling}|>"
        messages = [{"role": "system", "content": spelt}, *random_conversation(4)]
        messages[-1]["content"].append({"type": "text", "text": spelt})
        expected = expected_ids(processor, messages, sanitize_control_tokens=True)
        assert ids_of(tokens_of(checkpoint, messages)) == expected


def test_each_image_starts_where_its_placeholders_stand(demo: Checkpoint) -> None:
    messages = random_conversation(4)
    tokens = tokens_of(demo, messages)
    ids = ids_of(tokens)
    plans = plans_of(demo, messages)
    assert len(tokens.image_starts) == len(plans) == 4
    covered = [
        index
        for start, plan in zip(tokens.image_starts, plans, strict=True)
        for index in range(start, start + plan.num_tokens)
    ]
    image = demo.layout.image_token_id
    assert covered == [index for index, token_id in enumerate(ids) if token_id == image]
    assert tokens.num_tokens == len(ids)


def prompt_of_length(checkpoint: Checkpoint, num_tokens: int, max_tokens: int = 16) -> Prompt:
    """A prompt of exactly `num_tokens`: each digit is a token."""
    empty = tokens_of(checkpoint, [{"role": "user", "content": ""}]).num_tokens
    return prompt_of([{"role": "user", "content": "7" * (num_tokens - empty)}], max_tokens)


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(demo: Checkpoint) -> None:
    with pytest.raises(PromptTooLong, match=rf" {CONTEXT} tokens; .* have {CONTEXT}$"):
        build(prompt_of_length(demo, CONTEXT, UNCAPPED_TOKENS), [], demo, CONTEXT)


def test_a_prompt_that_leaves_one_token_is_taken(demo: Checkpoint) -> None:
    tokens = build(prompt_of_length(demo, CONTEXT - 1, UNCAPPED_TOKENS), [], demo, CONTEXT)
    assert tokens.num_tokens == CONTEXT - 1
    assert tokens.sampling.max_tokens == 1


@pytest.mark.parametrize(("asked", "told"), [(7, 7), (UNCAPPED_TOKENS, CONTEXT - 100)])
def test_an_open_answer_may_take_what_is_left(demo: Checkpoint, asked: int, told: int) -> None:
    prompt = prompt_of_length(demo, 100, asked)
    assert build(prompt, [], demo, CONTEXT).sampling.max_tokens == told


def test_an_answer_that_cannot_fit_is_refused_with_all_numbers(demo: Checkpoint) -> None:
    build(prompt_of_length(demo, 100, CONTEXT - 100), [], demo, CONTEXT)
    expected = rf" 100 tokens, and up to {CONTEXT - 99} are .* have {CONTEXT}$"
    with pytest.raises(PromptTooLong, match=expected):
        build(prompt_of_length(demo, 100, CONTEXT - 99), [], demo, CONTEXT)


def test_a_hopeless_answer_is_refused_before_any_image_is_looked_at(demo: Checkpoint) -> None:
    refuse_hopeless(prompt_of_length(demo, 100, CONTEXT - 100), CONTEXT)
    with pytest.raises(PromptTooLong, match=rf"up to {CONTEXT} are .* have {CONTEXT}$"):
        refuse_hopeless(prompt_of_length(demo, 100, CONTEXT), CONTEXT)


def test_images_that_do_not_fit_are_told_apart(demo: Checkpoint) -> None:
    messages = random_conversation(4)
    plans = plans_of(demo, messages)
    num_image_tokens = sum(plan.num_tokens for plan in plans)
    with pytest.raises(PromptTooLong, match=rf"{num_image_tokens} of them for images, .* have 70$"):
        build(prompt_of(messages), plans, demo, 70)


@pytest.mark.parametrize("text", ["word " * 10**6, "\n" * 10**6, " " * 10**7])
def test_a_hopeless_prompt_costs_little(demo: Checkpoint, text: str) -> None:
    seconds = -time.perf_counter()
    with pytest.raises(PromptTooLong, match=r"at least (about )?\d+ tokens"):
        build(prompt_of([{"role": "user", "content": text}]), [], demo, CONTEXT)
    assert seconds + time.perf_counter() < 0.25


def test_a_prompt_of_too_many_turns_is_refused_before_it_is_rendered(demo: Checkpoint) -> None:
    messages = [{"role": "user", "content": ""}] * CONTEXT
    with pytest.raises(PromptTooLong, match=f"at least {CONTEXT} tokens"):
        build(prompt_of(messages), [], demo, CONTEXT)


def test_a_template_that_leaves_an_image_out_is_refused(demo: Checkpoint) -> None:
    template = compile_template("{{ messages[0].content[0].text }}", {})
    checkpoint = dataclasses.replace(demo, template=template)
    content = [{"type": "text", "text": "a"}, {"type": "image", "image": picture(90, 60, 3)}]
    with pytest.raises(BadRequest, match="0 of the 1 images"):
        tokens_of(checkpoint, [{"role": "user", "content": content}])


def test_half_a_surrogate_pair_is_the_callers_mistake(demo: Checkpoint) -> None:
    with pytest.raises(BadRequest, match="Unicode"):
        tokens_of(demo, [{"role": "user", "content": "a \ud83e b"}])


@pytest.mark.parametrize(
    ("source", "num_begins"),
    [("<|im_start|>{{ messages[0].content }}", 1), ("{{ messages[0].content }}", 1)],
)
def test_the_begin_token_stands_once_whoever_writes_it(
    demo: Checkpoint, source: str, num_begins: int
) -> None:
    tokenizer = Tokenizer.from_str(demo.tokenizer.to_str())
    begin = ("<|im_start|>", 761)
    tokenizer.post_processor = TemplateProcessing("<|im_start|> $A", special_tokens=[begin])
    template = compile_template(source, {"bos_token": "<|im_start|>"})
    checkpoint = dataclasses.replace(demo, template=template, tokenizer=tokenizer)
    ids = ids_of(tokens_of(checkpoint, [{"role": "user", "content": "Hello"}]))
    assert ids.count(761) == num_begins
    assert ids[0] == 761
