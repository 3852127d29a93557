"""The layout agrees with transformers on sizes and positions, and refuses what is not served."""

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from tests.checkpoints import MODEL_TYPES, make_checkpoint
from workers.families import ImageShapeError, Layout, UnsupportedCheckpoint, load_layout
from workers.families.qwen_vl.layout import QwenLayout, read_layout

IMAGE_TOKEN = 766
EDGE_SIZES = [(1, 1), (1, 200), (200, 1), (2, 399), (13, 2600), (8192, 8192), (1, 2), (5000, 25)]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("layout"), request.param)


@pytest.fixture
def editable(checkpoint: Path, tmp_path: Path) -> Path:
    """The configuration files alone, to be edited by a test."""
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((checkpoint / name).read_bytes())
    return tmp_path


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; a value of None takes the key out."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def reference_processor(model: Path) -> Any:
    return transformers.Qwen2VLImageProcessorPil.from_pretrained(model)


def sample_sizes(seed: int, count: int) -> list[tuple[int, int]]:
    """Heights and widths: edge cases, halves that round to even, and log-uniform ones."""
    rng = random.Random(seed)
    sizes = list(EDGE_SIZES)
    sizes += [(14 * (2 * n + 1), 16 * (2 * n + 1)) for n in range(30)]
    while len(sizes) < count:
        height, width = (int(2 ** rng.uniform(0, 13)) for _ in range(2))
        if max(height, width) <= 200 * min(height, width):
            sizes.append((height, width))
    return sizes


def count_size_mismatches(layout: QwenLayout, processor: Any, sizes: list[tuple[int, int]]) -> int:
    """Sizes at which the layout's patches, tokens or sides differ from the processor's."""
    mismatches = 0
    for height, width in sizes:
        plan = layout.plan((height, width), "cpu")
        patches = processor.get_number_of_image_patches(height, width)
        consistent = plan.resized_size == (
            plan.grid[1] * plan.patch_size,
            plan.grid[2] * plan.patch_size,
        )
        mismatches += (
            plan.num_patches != patches or plan.num_tokens * 4 != patches or not consistent
        )
    return mismatches


def test_sizes_equal_the_processors_on_800_sizes(checkpoint: Path) -> None:
    layout, processor = read_layout(checkpoint), reference_processor(checkpoint)

    assert count_size_mismatches(layout, processor, sample_sizes(1, 800)) == 0


def test_sizes_equal_the_processors_with_default_limits(editable: Path) -> None:
    edit(editable / "preprocessor_config.json", min_pixels=None, max_pixels=None)
    layout, processor = read_layout(editable), reference_processor(editable)

    assert count_size_mismatches(layout, processor, sample_sizes(2, 800)) == 0


def test_no_resized_picture_has_more_pixels_than_the_layout_says(checkpoint: Path) -> None:
    layout, rng = read_layout(checkpoint), random.Random(3)
    for _ in range(300):
        least, most = sorted(int(2 ** rng.uniform(4, 22)) for _ in range(2))
        limited = replace(layout.checkpoint, min_pixels=least, max_pixels=most)
        drawn = replace(layout, checkpoint=limited)
        for size in sample_sizes(rng.randrange(10**6), 60):
            height, width = drawn.plan(size, "cuda").resized_size
            assert height * width <= drawn.max_resized_pixels, (size, least, most)


def test_with_usual_limits_the_most_pixels_are_the_limit(editable: Path) -> None:
    edit(editable / "preprocessor_config.json", min_pixels=3136, max_pixels=12845056)
    assert read_layout(editable).max_resized_pixels == 12845056


def test_another_pixel_limit_is_noticed_by_the_size_test(editable: Path, checkpoint: Path) -> None:
    most = json.loads((editable / "preprocessor_config.json").read_text())["max_pixels"]
    edit(editable / "preprocessor_config.json", max_pixels=most * 9 // 10)

    layout, processor = read_layout(editable), reference_processor(checkpoint)

    assert count_size_mismatches(layout, processor, sample_sizes(1, 800)) > 50


def test_grids_equal_those_of_processed_images(checkpoint: Path) -> None:
    layout, processor = read_layout(checkpoint), reference_processor(checkpoint)
    for index, (height, width) in enumerate([(9, 31), (120, 57), (333, 500), (64, 640), (42, 42)]):
        image = Image.new("RGB", (width, height), (index * 40, 9, 200))

        grid = processor(image)["image_grid_thw"][0].tolist()

        assert list(layout.plan((height, width), "cpu").grid) == grid


@pytest.mark.parametrize(
    "spelling",
    [
        {"size": {"shortest_edge": 5000, "longest_edge": 90000}},
        {"min_pixels": 5000, "max_pixels": 90000},
        {"min_pixels": 5000, "max_pixels": 90000, "size": {"min_pixels": 1, "max_pixels": 2}},
        {"min_pixels": 5000, "size": {"shortest_edge": 7, "longest_edge": 90000}},
    ],
)
def test_both_spellings_of_the_limits_are_read(editable: Path, spelling: dict[str, Any]) -> None:
    file = editable / "preprocessor_config.json"
    edit(file, **({"min_pixels": None, "max_pixels": None} | spelling))
    layout, processor = read_layout(editable), reference_processor(editable)

    facts = layout.checkpoint
    assert (facts.min_pixels, facts.max_pixels) == (5000, 90000)
    assert (processor.size["shortest_edge"], processor.size["longest_edge"]) == (5000, 90000)


def test_processor_config_wins_as_in_the_library(editable: Path) -> None:
    nested = json.loads((editable / "preprocessor_config.json").read_text())
    nested |= {"min_pixels": 6000, "max_pixels": 70000}
    (editable / "processor_config.json").write_text(json.dumps({"image_processor": nested}))

    assert read_layout(editable).checkpoint.max_pixels == 70000
    assert reference_processor(editable).size["longest_edge"] == 70000


def test_flat_config_of_early_checkpoints_is_read(editable: Path) -> None:
    nested = json.loads((editable / "config.json").read_text())
    flat = nested.pop("text_config") | nested
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": [2, 3, 3]}
    (editable / "config.json").write_text(json.dumps(flat))

    assert read_layout(editable).max_context_tokens == 4096


def test_layout_names_the_placeholder(checkpoint: Path) -> None:
    layout: Layout = load_layout(checkpoint)

    assert (layout.image_token, layout.image_token_id) == ("<|image_pad|>", IMAGE_TOKEN)
    assert (layout.family, layout.max_context_tokens) == ("qwen_vl", 4096)


@pytest.mark.parametrize(
    ("size", "numbers"),
    [((1, 201), "201 x 1"), ((4020, 20), "20 x 4020"), ((0, 5), "5 x 0"), ((7, 0), "0 x 7")],
)
def test_impossible_shapes_are_refused_with_numbers(
    checkpoint: Path, size: tuple[int, int], numbers: str
) -> None:
    with pytest.raises(ImageShapeError, match=numbers):
        read_layout(checkpoint).plan(size, "cpu")


@pytest.mark.parametrize(
    ("file", "change", "reason"),
    [
        ("config.json", {"quantization_config": {"quant_method": "awq"}}, "awq"),
        ("config.json", {"model_type": "llava"}, "llava"),
        ("preprocessor_config.json", {"do_resize": False}, "do_resize"),
        ("preprocessor_config.json", {"do_normalize": False}, "do_normalize"),
        ("preprocessor_config.json", {"resample": 2}, "resample 2"),
        ("preprocessor_config.json", {"patch_size": 15}, "equal"),
        ("preprocessor_config.json", {"merge_size": 1}, "equal"),
        ("preprocessor_config.json", {"image_mean": [0.5, 0.5]}, "image_mean"),
        ("preprocessor_config.json", {"max_pixels": 3}, "max_pixels"),
        ("preprocessor_config.json", {"image_processor_type": "CLIPImageProcessor"}, "CLIP"),
    ],
)
def test_unsupported_features_are_refused(
    editable: Path, file: str, change: dict[str, Any], reason: str
) -> None:
    edit(editable / file, **change)

    with pytest.raises(UnsupportedCheckpoint, match=reason):
        read_layout(editable)


@pytest.mark.parametrize("section", [None, {}, [], "x", {"hidden_size": 8}])
def test_a_text_model_of_unknown_size_is_refused(editable: Path, section: Any) -> None:
    edit(editable / "config.json", text_config=section)

    with pytest.raises(UnsupportedCheckpoint, match=r"text_config|hidden_size|num_hidden_layers"):
        read_layout(editable)


@pytest.mark.parametrize("rope", [{"rope_type": "dynamic"}, {"type": "longrope"}])
def test_rotary_angles_that_depend_on_the_batch_are_refused(
    editable: Path, rope: dict[str, Any]
) -> None:
    text = json.loads((editable / "config.json").read_text())["text_config"]
    edit(editable / "config.json", text_config=text | {"rope_parameters": rope})

    with pytest.raises(UnsupportedCheckpoint, match="rope type"):
        read_layout(editable)


def test_folder_without_processor_file_is_refused(editable: Path) -> None:
    (editable / "preprocessor_config.json").unlink()

    with pytest.raises(UnsupportedCheckpoint, match="preprocessor_config"):
        read_layout(editable)


# ---- positions


def random_prompt(
    rng: random.Random, layout: QwenLayout
) -> tuple[list[int], list[tuple[int, tuple[int, int, int]]]]:
    """Token ids, and the images' (start, grid); first and last token may be an image's."""
    token_ids: list[int] = []
    spans = []
    num_images = rng.randrange(5)
    for index in range(num_images):
        plan = layout.plan((rng.randint(20, 300), rng.randint(20, 300)), "cpu")
        token_ids += [5] * rng.randint(0 if index == 0 else 1, 9)
        spans.append((len(token_ids), plan.grid))
        token_ids += [IMAGE_TOKEN] * plan.num_tokens
    token_ids += [5] * rng.randint(0 if num_images else 1, 9)
    return token_ids, spans


def reference_positions(
    model: Any, token_ids: list[int], spans: list[tuple[int, tuple[int, int, int]]]
) -> tuple[Any, int]:
    ids = torch.tensor([token_ids])
    positions, delta = model.model.get_rope_index(
        ids,
        mm_token_type_ids=(ids == IMAGE_TOKEN).int(),
        image_grid_thw=torch.tensor([grid for _, grid in spans]) if spans else None,
    )
    return positions[:, 0].numpy(), int(delta)


def count_position_mismatches(checkpoint: Path, shift: int) -> int:
    layout = read_layout(checkpoint)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint)
    rng = random.Random(3)
    mismatches = 0
    for _ in range(60):
        token_ids, spans = random_prompt(rng, layout)
        expected, delta = reference_positions(model, token_ids, spans)
        # A shifted span is the negative control; the last image must stay inside the prompt.
        shifted = [(start + shift, grid) for start, grid in spans] if token_ids[-1] == 5 else spans
        positions, offset = layout.positions(len(token_ids), shifted)
        assert positions.dtype == np.int64
        mismatches += not (np.array_equal(positions, expected) and offset == delta)
    return mismatches


def test_positions_equal_the_librarys(checkpoint: Path) -> None:
    assert count_position_mismatches(checkpoint, shift=0) == 0


def test_a_span_one_token_off_is_noticed_by_the_position_test(checkpoint: Path) -> None:
    assert count_position_mismatches(checkpoint, shift=1) > 20
