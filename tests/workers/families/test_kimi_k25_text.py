"""The latent decoder: what it refuses, what it keeps, and variants of its configuration."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.workers.language.models import Model, make_kimi_model, make_request
from tests.workers.language.rows import TOLERANCE, distance, packed, single
from workers.families import UnsupportedCheckpoint
from workers.families.decoder import LayerKv
from workers.families.kimi_k25.text import TextModel


@pytest.fixture(scope="module")
def plain() -> Model:
    return make_kimi_model()


def layers_of(model: Model) -> Any:
    assert isinstance(model.decoder, TextModel)
    return model.decoder._language_model.layers


def test_rotations_that_change_with_the_batch_are_refused() -> None:
    config = SimpleNamespace(model_type="deepseek_v3", rope_parameters={"rope_type": "dynamic"})
    with pytest.raises(UnsupportedCheckpoint, match="dynamic"):
        TextModel(SimpleNamespace(config=config), torch.nn.Linear(1, 1))


def test_other_text_models_are_refused() -> None:
    config = SimpleNamespace(model_type="deepseek_v32", rope_parameters=None)
    with pytest.raises(UnsupportedCheckpoint, match="'deepseek_v32'"):
        TextModel(SimpleNamespace(config=config), torch.nn.Linear(1, 1))


def test_a_token_is_kept_as_one_latent_and_one_rotated_key(plain: Model) -> None:
    expected = LayerKv(num_heads=1, key_dim=16 + 8, value_dim=16, is_latent=True)
    assert plain.decoder.kv_spec == (expected,) * 3


def test_no_token_is_ever_expanded(plain: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Tensor) -> Tensor:
        raise AssertionError("expanded")

    requests = [make_request(plain, seed, 1) for seed in (3, 4)]
    expected = single(plain, requests)
    for layer in layers_of(plain):
        monkeypatch.setattr(layer.self_attn.kv_b_proj, "forward", refuse)
    assert distance(packed(plain, requests, max_step_tokens=9)[0], expected) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        pytest.param({"q_lora_rank": None}, id="whole queries"),
        pytest.param({"rope_interleave": False}, id="rotary halves"),
        pytest.param({"n_group": 1, "topk_group": 1, "first_k_dense_replace": 0}, id="one group"),
        pytest.param({"first_k_dense_replace": 3}, id="no experts"),
        pytest.param(
            {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}}, id="no yarn"
        ),
        pytest.param({"v_head_dim": 24, "kv_lora_rank": 8}, id="values longer than latents"),
    ],
)
def test_variants_equal_the_library(text: dict[str, Any]) -> None:
    model = make_kimi_model(1, **text)
    requests = [make_request(model, seed, seed % 3) for seed in range(20, 24)]
    found, _ = packed(model, requests, max_step_tokens=13)
    assert distance(found, single(model, requests)) < TOLERANCE


def next_latent(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    return latent.roll(1, 2), rotated


def next_rotated(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    return latent, rotated.roll(1, 2)


def scaled_latent(latent: Tensor, rotated: Tensor) -> tuple[Tensor, Tensor]:
    return latent * 1.1, rotated


@pytest.mark.parametrize("change", [next_latent, next_rotated, scaled_latent])
def test_control_wrong_latents_change_the_rows(
    plain: Model, monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    requests = [make_request(plain, 5, 1)]
    for layer in layers_of(plain):
        monkeypatch.setattr(layer.self_attn, "expand_kv", change)
    assert distance(packed(plain, requests)[0], single(plain, requests)) > 100 * TOLERANCE
