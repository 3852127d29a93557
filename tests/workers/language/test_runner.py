"""Packed forward passes against the library's forward, one sequence at a time, row by row."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from tests.checkpoints import MODEL_TYPES
from tests.workers.language.models import IMAGE, Model, Request, make_request
from tests.workers.language.rows import NUM_LATER_TOKENS, TOLERANCE, distance, packed, single
from workers.language import attention
from workers.language.prompts import Prompt


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
    return replace(prompt, positions=np.arange(length)[None].repeat(3, 0), offset=0)


def wrong_offset(prompt: Prompt) -> Prompt:
    return replace(prompt, offset=prompt.offset + 1)


def reversed_embeddings(prompt: Prompt) -> Prompt:
    pictures = [replace(each, embeddings=each.embeddings.flip(1)) for each in prompt.pictures]
    return replace(prompt, pictures=tuple(pictures))


def no_images(prompt: Prompt) -> Prompt:
    return replace(prompt, pictures=())


@pytest.mark.slow
@pytest.mark.parametrize("change", [flat_positions, wrong_offset, reversed_embeddings, no_images])
def test_control_changed_prompts_change_the_rows(
    model: Model, change: Callable[[Prompt], Prompt]
) -> None:
    requests = [make_request(model, 2, 2)]
    expected = single(model, requests)
    assert distance(packed(model, requests)[0], expected) < TOLERANCE
    assert distance(packed(model, requests, change=change)[0], expected) > 100 * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("model", MODEL_TYPES, indirect=True)
def test_control_without_places_of_images_rows_change(model: Model) -> None:
    requests = [make_request(model, 2, 2)]
    found, _ = packed(model, requests, change=text_positions)
    assert distance(found, single(model, requests)) > 100 * TOLERANCE


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


@pytest.mark.parametrize("model", ["qwen3_vl", "kimi_k25"], indirect=True)
def test_control_without_causal_mask_rows_change(
    model: Model, monkeypatch: pytest.MonkeyPatch
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

    requests = [make_request(model, 2, 1)]
    expected = single(model, requests)
    monkeypatch.setattr(attention, "scaled_dot_product_attention", see_all)
    assert distance(packed(model, requests)[0], expected) > 100 * TOLERANCE


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
