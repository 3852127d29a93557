"""An image that comes as a grid of patches gets the plan of the picture that the patches are of."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from workers.families import ImageShapeError, Layout, load_layout
from workers.families.plan import ImagePlan

# Limits of a public checkpoint, of a small one, and of one whose long pictures exceed the area.
LIMITS: dict[str, list[dict[str, Any]]] = {
    "qwen": [
        {"size": {"shortest_edge": 3136, "longest_edge": 12_845_056}},
        {"size": {"shortest_edge": 50_000, "longest_edge": 60_000}},
        {"size": {"shortest_edge": 784, "longest_edge": 9_000}},
    ],
    "kimi": [
        {"max_patches": 16384, "size": {"max_height": 512, "max_width": 512}},
        {"max_patches": 65536, "size": {"max_height": 512, "max_width": 512}},
        {"max_patches": 60, "size": {"max_height": 20, "max_width": 20}},
    ],
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("grids")
    return {name: make_checkpoint(folder, name) for name in ALL_MODEL_TYPES}


@pytest.fixture(params=[(name, row) for name in ALL_MODEL_TYPES for row in range(3)], ids=str)
def layout(request: pytest.FixtureRequest, checkpoints: dict[str, Path], tmp_path: Path) -> Layout:
    name, row = request.param
    for file in ("config.json", "preprocessor_config.json"):
        (tmp_path / file).write_bytes((checkpoints[name] / file).read_bytes())
    path = tmp_path / "preprocessor_config.json"
    processor = json.loads(path.read_text()) | LIMITS[name[:4]][row]
    path.write_text(json.dumps(processor))
    return load_layout(tmp_path)


def some_plans(layout: Layout, seed: int) -> list[ImagePlan]:
    """Of small, large, long and square pictures, many of them near a limit."""
    rng = random.Random(seed)
    most = layout.max_resized_pixels
    plans: list[ImagePlan] = []
    while len(plans) < 500:
        area = most * 2 ** rng.uniform(-1, 2) if rng.random() < 0.7 else 2 ** rng.uniform(2, 24)
        ratio = 2 ** rng.uniform(-7.5, 7.5)
        height, width = max(1, int((area * ratio) ** 0.5)), max(1, int((area / ratio) ** 0.5))
        if max(height, width) <= 200 * min(height, width):
            plans.append(layout.plan((height, width), "cpu"))
    return plans


def test_every_grid_that_a_picture_gives_is_taken_with_its_tokens(layout: Layout) -> None:
    for plan in some_plans(layout, 1):
        again = layout.plan_grid(plan.grid, "cpu")
        facts = ("grid", "num_tokens", "padded_size", "patch_size", "merge_size", "patch_order")
        assert [getattr(again, name) for name in facts] == [getattr(plan, name) for name in facts]
        assert again.source_size == again.resized_size == plan.padded_size


@pytest.mark.parametrize("layout", [("kimi_k25", 0)], indirect=True, ids=str)
def test_a_picture_of_the_grids_own_size_may_give_another(layout: Layout) -> None:
    """Why a layout plans a grid by itself."""
    plan = layout.plan((4000, 4000), "cpu")
    assert layout.plan(plan.padded_size, "cpu").grid != plan.grid


@pytest.mark.parametrize(
    "grid",
    [
        (0, 4, 4), (2, 4, 4), (-1, 4, 4), (1, 0, 4), (1, 4, 0), (1, -4, -4), (1, 3, 4), (1, 4, 5),
        (1, 2**62, 2**62), (1, 2**63 - 2, 2), (1, 2, 2**63 - 2), (1, 4000, 4000),
        (-(2**63), -(2**63), -(2**63)),
    ],
)  # fmt: skip
def test_a_grid_of_no_picture_is_refused_with_what_is_allowed(
    layout: Layout, grid: tuple[int, int, int]
) -> None:
    with pytest.raises(ImageShapeError) as caught:
        layout.plan_grid(grid, "cpu")
    assert str(list(grid)) in str(caught.value)
    assert "multiples of 2" in str(caught.value)


def test_no_grid_is_taken_that_is_much_larger_than_any_pictures(layout: Layout) -> None:
    most = max(plan.num_patches for plan in some_plans(layout, 3))
    rng = random.Random(4)
    taken = 0
    for _ in range(500):
        area, ratio = most * 2 ** rng.uniform(-1, 2), 2 ** rng.uniform(-6, 6)
        rows, columns = (2 * round((area * ratio**turn) ** 0.5 / 2) for turn in (-1, 1))
        try:
            plan = layout.plan_grid((1, rows, columns), "cpu")
        except ImageShapeError:
            continue
        taken += 1
        # Padding adds at most one row and one column of tokens.
        assert plan.num_patches <= most + 2 * (rows + columns)
    assert taken > 20
