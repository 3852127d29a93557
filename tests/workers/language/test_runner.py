"""Packed forward passes against the library's forward, one sequence at a time, row by row."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.workers.language.models import (
    IMAGE,
    NUM_PLAIN_IDS,
    LentArenas,
    Model,
    Request,
    inputs_for_library,
    make_job,
    make_request,
)
from workers.language import attention
from workers.language.blocks import BlockPool
from workers.language.inputs import InputBuilder
from workers.language.prompts import Prompt, PromptReader
from workers.language.runner import Runner
from workers.language.scheduler import Scheduler
from workers.language.sequence import Sequence

NUM_LATER_TOKENS = 12
TOLERANCE = 3e-5  # of logits between 1 and 20
Rows = dict[tuple[int, int], Tensor]  # request, index of the token -> logits after it


def later_tokens(request: Request) -> list[int]:
    """An answer to force on both sides."""
    chance = random.Random(len(request.token_ids))
    return [chance.randrange(NUM_PLAIN_IDS) for _ in range(NUM_LATER_TOKENS)]


def packed(
    model: Model,
    requests: list[Request],
    num_blocks: int = 800,
    max_step_tokens: int = 2048,
    change: Callable[[Prompt], Prompt] = lambda prompt: prompt,
) -> tuple[Rows, int]:
    """Logits of every row that chooses a token, and how often a sequence was preempted."""
    arenas = LentArenas()
    reader = PromptReader(model.decoder, model.layout, arenas, 4096)
    runner = Runner(model.decoder, num_blocks, block_tokens=2)
    builder = InputBuilder(model.decoder, runner.cache)
    scheduler = Scheduler(BlockPool(num_blocks, 2), max_step_tokens, 16)
    prompts: dict[str, Prompt] = {}
    for index, request in enumerate(requests):
        job = make_job(arenas, request, str(index))
        prompts[str(index)] = change(reader.read(job))
        sequence = Sequence(
            job_id=str(index),
            token_ids=list(request.token_ids),
            num_prompt_tokens=request.num_tokens,
            sampling=job.sampling,
            max_tokens=request.num_tokens + NUM_LATER_TOKENS,
            deadline=1e9,
        )
        scheduler.add(sequence)
    return _run(runner, builder, scheduler, prompts, requests)


def _run(
    runner: Runner,
    builder: InputBuilder,
    scheduler: Scheduler,
    prompts: Mapping[str, Prompt],
    requests: list[Request],
) -> tuple[Rows, int]:
    rows: Rows = {}
    num_preempted = 0
    while (step := scheduler.pick()) is not None:
        if step.dirty_blocks:
            num_preempted += 1
            runner.zero(step.dirty_blocks)
        tensors = builder.build(step, prompts)
        logits = runner.run(tensors)
        for piece in step.slices:
            piece.sequence.num_computed_tokens = piece.end
        for sequence, row in zip(tensors.choosers, logits, strict=True):
            index = int(sequence.job_id)
            rows[index, sequence.num_tokens - 1] = row
            if sequence.accept(later_tokens(requests[index])[sequence.num_completion_tokens]):
                scheduler.remove(sequence, is_finite=True)
    return rows, num_preempted


@torch.inference_mode()
def single(model: Model, requests: list[Request]) -> Rows:
    """The same rows from the library's full model."""
    rows: Rows = {}
    for index, request in enumerate(requests):
        forced = replace(request, token_ids=request.token_ids + later_tokens(request)[:-1])
        inputs = inputs_for_library(forced)
        positions, _ = model.library.model.get_rope_index(
            inputs["input_ids"], inputs["mm_token_type_ids"], inputs.get("image_grid_thw")
        )
        logits = model.library(**inputs, position_ids=positions, use_cache=False).logits[0]
        for at in range(request.num_tokens - 1, len(forced.token_ids)):
            rows[index, at] = logits[at]
    return rows


def distance(found: Rows, expected: Rows) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[key] - expected[key]).abs().max()) for key in expected)


@pytest.fixture
def requests_of() -> Callable[[Model], list[Request]]:
    return lambda model: [make_request(model, seed, seed % 5) for seed in range(100, 106)]


@pytest.mark.slow
@pytest.mark.parametrize(("max_step_tokens", "num_blocks"), [(2048, 800), (17, 800), (64, 100)])
def test_packed_rows_equal_the_library(
    model: Model,
    requests_of: Callable[[Model], list[Request]],
    max_step_tokens: int,
    num_blocks: int,
) -> None:
    requests = requests_of(model)
    expected = single(model, requests)
    found, num_preempted = packed(model, requests, num_blocks, max_step_tokens)
    assert distance(found, expected) < TOLERANCE
    assert (num_preempted > 0) == (num_blocks < 800)


def flat_positions(prompt: Prompt) -> Prompt:
    return replace(prompt, positions=np.zeros_like(prompt.positions))


def text_positions(prompt: Prompt) -> Prompt:
    length = prompt.positions.shape[1]
    return replace(prompt, positions=np.tile(np.arange(length), (3, 1)), offset=0)


def wrong_offset(prompt: Prompt) -> Prompt:
    return replace(prompt, offset=prompt.offset + 1)


def reversed_embeddings(prompt: Prompt) -> Prompt:
    pictures = [replace(each, embeddings=each.embeddings.flip(1)) for each in prompt.pictures]
    return replace(prompt, pictures=tuple(pictures))


def no_images(prompt: Prompt) -> Prompt:
    return replace(prompt, pictures=())


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [flat_positions, text_positions, wrong_offset, reversed_embeddings, no_images]
)
def test_control_changed_prompts_change_the_rows(
    model: Model, change: Callable[[Prompt], Prompt]
) -> None:
    requests = [make_request(model, 2, 2)]
    expected = single(model, requests)
    assert distance(packed(model, requests)[0], expected) < TOLERANCE
    assert distance(packed(model, requests, change=change)[0], expected) > 100 * TOLERANCE


def test_control_missing_deepstack_changes_the_rows(deep_model: Model) -> None:
    def first_level_only(prompt: Prompt) -> Prompt:
        pictures = []
        for each in prompt.pictures:
            embeddings = each.embeddings.clone()
            embeddings[1:] = 0
            pictures.append(replace(each, embeddings=embeddings))
        return replace(prompt, pictures=tuple(pictures))

    requests = [make_request(deep_model, 2, 1)]
    found, _ = packed(deep_model, requests, change=first_level_only)
    assert distance(found, single(deep_model, requests)) > 100 * TOLERANCE


def test_control_without_causal_mask_rows_change(
    deep_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def see_all(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        scale: float,
        enable_gqa: bool = False,
        **_: object,
    ) -> Tensor:
        return scaled_dot_product_attention(query, key, value, scale=scale, enable_gqa=enable_gqa)

    requests = [make_request(deep_model, 2, 1)]
    expected = single(deep_model, requests)
    monkeypatch.setattr(attention, "scaled_dot_product_attention", see_all)
    assert distance(packed(deep_model, requests)[0], expected) > 100 * TOLERANCE


def test_only_rows_that_choose_are_projected(
    deep_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    project = deep_model.decoder.logits

    def counting(hidden: Tensor) -> Tensor:
        sizes.append(len(hidden))
        return project(hidden)

    monkeypatch.setattr(deep_model.decoder, "logits", counting)
    request = make_request(deep_model, 3, 3)
    packed(deep_model, [request], max_step_tokens=16)
    num_first_chunks = -(-request.num_tokens // 16) - 1
    assert sizes == [0] * num_first_chunks + [1] * NUM_LATER_TOKENS
    assert IMAGE in request.token_ids
