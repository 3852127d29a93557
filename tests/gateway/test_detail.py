"""A budget of pixels: the least of what caller and operator say, planned as the processor would."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import ImageSettings
from gateway.prompts.prompt import pixel_budget
from tests.checkpoints import ALL_MODEL_TYPES, MODEL_TYPES, make_checkpoint
from workers.families import load_layout
from workers.families.kimi_k25.layout import KimiLayout
from workers.families.qwen_vl.layout import QwenLayout

OPEN = ImageSettings(low_detail_pixels=1000)
CAPPED = ImageSettings(low_detail_pixels=1000, max_resized_pixels=5000)
TIGHT = ImageSettings(low_detail_pixels=1000, max_resized_pixels=300)


@pytest.mark.parametrize(
    ("detail", "max_pixels", "limits", "budget"),
    [
        (None, None, OPEN, None),
        ("auto", None, OPEN, None),
        ("high", None, OPEN, None),
        ("original", None, OPEN, None),
        ("low", None, OPEN, 1000),
        ("low", 400, OPEN, 400),
        ("low", 4000, OPEN, 1000),
        ("high", 4000, OPEN, 4000),
        (None, None, CAPPED, 5000),
        ("high", None, CAPPED, 5000),
        ("high", 9000, CAPPED, 5000),
        ("high", 4000, CAPPED, 4000),
        ("low", None, CAPPED, 1000),
        ("low", None, TIGHT, 300),
    ],
)
def test_the_least_of_all_limits_counts(
    detail: str | None, max_pixels: int | None, limits: ImageSettings, budget: int | None
) -> None:
    assert pixel_budget(detail, max_pixels, limits) == budget


def sizes_and_budgets(seed: int) -> list[tuple[tuple[int, int], int]]:
    chance = random.Random(seed)
    return [
        ((chance.randint(10, 1500), chance.randint(10, 1500)), chance.randint(1, 200_000))
        for _ in range(300)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_budget_is_the_processors_own_max_pixels(tmp_path: Path, model_type: str) -> None:
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

    layout = load_layout(make_checkpoint(tmp_path, model_type))
    assert isinstance(layout, QwenLayout)
    facts = layout.checkpoint
    shrunk = 0
    for (height, width), budget in sizes_and_budgets(1):
        most = min(facts.max_pixels, budget)
        expected = smart_resize(
            height,
            width,
            factor=facts.patch_size * facts.merge_size,
            min_pixels=min(facts.min_pixels, most),
            max_pixels=most,
        )
        planned = layout.plan((height, width), "cpu", budget)
        assert planned.resized_size == expected
        shrunk += planned.num_tokens < layout.plan((height, width), "cpu").num_tokens
    assert shrunk > 50


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ALL_MODEL_TYPES)
def test_a_budget_never_gives_more_than_the_checkpoint(tmp_path: Path, model_type: str) -> None:
    layout = load_layout(make_checkpoint(tmp_path, model_type))
    for size, budget in sizes_and_budgets(2):
        height, width = layout.plan(size, "cpu", budget).resized_size
        assert height * width <= layout.max_resized_pixels
        most = layout.max_resized_pixels
        assert layout.plan(size, "cpu", most) == layout.plan(size, "cpu")


@pytest.mark.slow
def test_a_budget_is_kimis_own_limit_of_patches(tmp_path: Path) -> None:
    layout = load_layout(make_checkpoint(tmp_path, "kimi_k25"))
    assert isinstance(layout, KimiLayout)
    facts = layout.checkpoint
    for size, budget in sizes_and_budgets(3):
        patches = min(facts.max_patches, max(1, budget // facts.patch_size**2))
        limited = replace(layout, checkpoint=replace(facts, max_patches=patches))
        assert layout.plan(size, "cpu", budget) == limited.plan(size, "cpu")
