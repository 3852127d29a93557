"""The layout agrees with transformers and with the public reference on every size."""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import transformers
from PIL import Image
from transformers.models.kimi_k25.image_processing_kimi_k25 import navit_resize

from tests.kimi_checkpoint import IMAGE_TOKEN, PROCESSOR, TEXT, VISION
from tests.workers.families.navit_rows import K3, K25, Example
from workers.families import ImageShapeError, Layout, UnsupportedCheckpoint, load_layout
from workers.families.kimi_k25.layout import KimiLayout, read_layout
from workers.families.plan import Background, plain

K25_LIMITS = {"in_patch_limit": 16384, "patch_limit_on_one_side": 512}
K3_LIMITS = {"in_patch_limit": 65536, "patch_limit_on_one_side": 512}
PUBLIC: dict[str, Any] = {
    "patch_size": 14,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "merge_kernel_size": 2,
    "fixed_output_tokens": None,
}
K3_BACKGROUND: dict[str, Any] = {
    "transparent_bg_config": {
        "pattern": "chessboard",
        "chessboard_square_size": 8,
        "chessboard_square_on_top_left": True,
        "chessboard_white_value": 255,
        "chessboard_gray_value": 180,
    },
    "transparent_bg_fill_stage": "after_resize",
}
EDGE_SIZES = [(1, 1), (1, 60000), (60000, 1), (13, 14), (7168, 7168), (7169, 3), (13, 7000), (2, 9)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The configuration files alone, in the library's spelling."""
    config = {
        "model_type": "kimi_k25",
        "text_config": TEXT,
        "vision_config": VISION,
        "image_token_id": IMAGE_TOKEN,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    return tmp_path


def edit(path: Path, **changes: Any) -> None:
    """Set keys of a JSON file; a value of None takes the key out."""
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def write_public(folder: Path, **changes: Any) -> None:
    """Put a processor file of the public spelling in place."""
    content = {"media_proc_cfg": PUBLIC | changes}
    (folder / "preprocessor_config.json").write_text(json.dumps(content))


def sample_sizes(seed: int, count: int) -> list[tuple[int, int]]:
    """Heights and widths: edge cases, neighbours of whole patches, and log-uniform ones."""
    rng = random.Random(seed)
    sizes = EDGE_SIZES + [(14 * n + rng.randint(-1, 1), 14 * n + 27) for n in range(1, 100)]
    while len(sizes) < count:
        height, width = (int(2 ** rng.uniform(0, 14)) for _ in range(2))
        sizes.append((height, width))
    return sizes


def count_size_mismatches(layout: KimiLayout, sizes: list[tuple[int, int]], **limits: int) -> int:
    """Sizes at which the layout's sides, grid or tokens differ from the library's."""
    mismatches = 0
    for height, width in sizes:
        plan = layout.plan((height, width), "cpu")
        resized, padded = navit_resize(height, width, 14, 2, **limits)
        grid = (1, padded[0] // 14, padded[1] // 14)
        mismatches += (plan.resized_size, plan.padded_size, plan.grid, plan.num_tokens) != (
            resized,
            padded,
            grid,
            grid[1] * grid[2] // 4,
        )
    return mismatches


@pytest.mark.parametrize(
    ("limits", "rows"), [(K25_LIMITS, K25), (K3_LIMITS, K3)], ids=["k25", "k3"]
)
def test_every_worked_example_comes_out(
    folder: Path, limits: dict[str, int], rows: tuple[Example, ...]
) -> None:
    write_public(folder, **limits)
    layout = read_layout(folder)
    for row in rows:
        plan = layout.plan((row.height, row.width), "cpu")
        assert plan.resized_size == (row.new_height, row.new_width)
        height, width = row.new_height + row.pad_height, row.new_width + row.pad_width
        assert plan.padded_size == (height, width)
        assert plan.grid == (1, height // 14, width // 14)
        assert plan.num_tokens == row.num_tokens


def test_padding_may_exceed_the_limit_by_as_much_as_the_reference_s(folder: Path) -> None:
    write_public(folder, **K3_LIMITS)
    assert read_layout(folder).plan((7041, 1861), "cpu").num_patches == 67268 > 65536


def test_examples_of_one_limit_fail_under_the_other(folder: Path) -> None:
    write_public(folder, **K3_LIMITS)
    layout = read_layout(folder)
    wrong = [row for row in K25 if layout.plan(row[1::-1], "cpu").num_tokens != row.num_tokens]
    assert len(wrong) >= 4


def test_sizes_equal_the_librarys_under_its_own_limits(folder: Path) -> None:
    edit(folder / "preprocessor_config.json", max_patches=None, size=None)
    layout = read_layout(folder)
    sizes = sample_sizes(1, 900)
    assert count_size_mismatches(layout, sizes, max_patches=16384, max_size_per_side=512) == 0


def test_sizes_equal_the_librarys_under_small_limits(folder: Path) -> None:
    layout = read_layout(folder)
    sizes = sample_sizes(2, 900)
    assert count_size_mismatches(layout, sizes, max_patches=120, max_size_per_side=14) == 0
    # The same sizes tell other limits apart.
    assert count_size_mismatches(layout, sizes, max_patches=121, max_size_per_side=14) > 50
    assert count_size_mismatches(layout, sizes, max_patches=120, max_size_per_side=16) > 50


def test_grids_equal_those_of_processed_images(folder: Path) -> None:
    layout = read_layout(folder)
    processor = transformers.Kimi_K25ImageProcessor.from_pretrained(folder)
    for index, (height, width) in enumerate([(9, 31), (120, 57), (133, 300), (64, 640), (42, 42)]):
        image = Image.new("RGB", (width, height), (index * 40, 9, 200))
        grid = processor(image, return_tensors="pt")["image_grid_thw"][0].tolist()
        assert list(layout.plan((height, width), "cpu").grid) == grid


def test_plans_cut_padded_images_in_raster_order(folder: Path) -> None:
    plan = read_layout(folder).plan((100, 40), "cuda")
    assert (plan.patch_order, plan.temporal_patch_size, plan.backend) == ("raster", 1, "cuda")
    assert (plan.resized_size, plan.padded_size) == ((100, 40), (112, 56))
    assert plan.background is None
    assert (plan.mean, plan.std, plan.rescale) == ((0.5,) * 3, (0.5,) * 3, 1 / 255)


def test_long_pictures_are_resized_vertically_first(folder: Path) -> None:
    layout = read_layout(folder)
    assert layout.plan((2000, 400), "cpu").first_pass == "vertical"
    assert layout.plan((400, 2000), "cpu").first_pass == "horizontal"


def test_plans_survive_the_wire(folder: Path) -> None:
    write_public(folder, **K3_LIMITS, **K3_BACKGROUND)
    plan = read_layout(folder).plan((333, 50), "cpu")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=type(plan)) == plan


@pytest.mark.parametrize("limits", [K25_LIMITS, K3_LIMITS, {"patch_limit_on_one_side": 4}])
def test_no_size_exceeds_the_most_pixels_and_some_come_near(
    folder: Path, limits: dict[str, int]
) -> None:
    write_public(folder, **limits)
    layout = read_layout(folder)
    sizes = [*sample_sizes(3, 800), (489, 7083), (7083, 489), (1861, 7041)]
    areas = [np.prod(layout.plan(size, "cpu").resized_size) for size in sizes]
    assert max(areas) <= layout.max_resized_pixels < 1.1 * max(areas)


def test_a_fixed_number_of_tokens_replaces_the_grids(folder: Path) -> None:
    write_public(folder, fixed_output_tokens=64, **K25_LIMITS)
    plan = read_layout(folder).plan((640, 480), "cpu")
    assert (plan.num_tokens, plan.num_patches) == (64, 46 * 36)


@pytest.mark.parametrize(("size", "numbers"), [((0, 5), "5 x 0"), ((7, 0), "0 x 7")])
def test_impossible_shapes_are_refused_with_numbers(
    folder: Path, size: tuple[int, int], numbers: str
) -> None:
    with pytest.raises(ImageShapeError, match=numbers):
        read_layout(folder).plan(size, "cpu")


def test_positions_count_on_through_images(folder: Path) -> None:
    positions, offset = read_layout(folder).positions(9, [(2, (1, 2, 4))])
    assert positions.dtype == np.int64
    assert positions.tolist() == [list(range(9))]
    assert offset == 0


# ---- files


def test_layout_names_the_placeholder(folder: Path) -> None:
    layout: Layout = load_layout(folder)
    assert (layout.image_token, layout.image_token_id) == ("<|media_pad|>", IMAGE_TOKEN)
    assert (layout.family, layout.max_context_tokens) == ("kimi_k25", 4096)


def test_both_spellings_say_the_same(folder: Path) -> None:
    ours = read_layout(folder)
    write_public(folder, in_patch_limit=120, patch_limit_on_one_side=14)
    vision = dict(VISION)
    public_names = {"vt_hidden_size": "hidden_size", "init_pos_emb_height": "pos_emb_height"}
    for public, name in public_names.items():
        vision[public] = vision.pop(name)
    edit(
        folder / "config.json",
        image_token_id=None,
        media_placeholder_token_id=IMAGE_TOKEN,
        vision_config=vision | {"init_pos_emb_width": 8, "mm_projector_type": "patchmerger"},
        text_config=TEXT | {"model_type": "kimi_k2"},
    )
    assert read_layout(folder) == ours


def test_processor_config_wins_as_in_the_library(folder: Path) -> None:
    nested = PROCESSOR | {"max_patches": 77}
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": nested}))
    assert read_layout(folder).checkpoint.max_patches == 77
    assert transformers.Kimi_K25ImageProcessor.from_pretrained(folder).max_patches == 77


def test_silent_files_mean_the_librarys_defaults(folder: Path) -> None:
    for file in ("preprocessor_config.json", "config.json"):
        keep = {"config.json": ("model_type", "text_config")}.get(file, ())
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({name: content[name] for name in keep}))
    facts = read_layout(folder).checkpoint
    reference = transformers.Kimi_K25ImageProcessor()
    assert facts.max_patches == reference.max_patches
    assert facts.max_side_patches == reference.size["max_height"]
    assert facts.mean == tuple(reference.image_mean)
    assert facts.std == tuple(reference.image_std)
    assert facts.image_token_id == transformers.Kimi_K25Config().image_token_id


WHITE, GRAY = (255,) * 3, (180,) * 3


@pytest.mark.parametrize(
    ("section", "stage", "expected"),
    [
        (K3_BACKGROUND["transparent_bg_config"], "after_resize", ("after_resize", 8, WHITE, GRAY)),
        (
            K3_BACKGROUND["transparent_bg_config"] | {"chessboard_square_on_top_left": False},
            "before_resize",
            ("before_resize", 8, GRAY, WHITE),
        ),
        ({"pattern": "chessboard"}, None, ("before_resize", 16, WHITE, (200,) * 3)),
        ({"pattern": "gray"}, None, ("before_resize", 1, (128,) * 3, (128,) * 3)),
        ({}, "after_resize", ("after_resize", 1, (0,) * 3, (0,) * 3)),
    ],
)
def test_the_ground_under_transparency_is_read(
    folder: Path, section: dict[str, Any], stage: str | None, expected: tuple[Any, ...]
) -> None:
    write_public(folder, transparent_bg_config=section, transparent_bg_fill_stage=stage)
    fields = ("stage", "square", "first", "second")
    background = Background(**dict(zip(fields, expected, strict=True)))
    assert read_layout(folder).plan((30, 50), "cpu").background == background


def test_a_white_ground_is_the_plain_one(folder: Path) -> None:
    edit(
        folder / "preprocessor_config.json",
        transparent_bg_config={"pattern": "white"},
        transparent_bg_fill_stage="after_resize",
    )
    assert read_layout(folder).checkpoint.background == plain((255, 255, 255))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"quantization_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors"),
        ({"text_config": TEXT | {"quantization_config": {"quant_method": "awq"}}}, "awq"),
        ({"text_config": TEXT | {"model_type": "kimi_linear"}}, "kimi_linear"),
        ({"text_config": TEXT | {"topk_method": "greedy"}}, "greedy"),
        ({"text_config": TEXT | {"rope_parameters": {"rope_type": "dynamic"}}}, "rope type"),
        ({"text_config": TEXT | {"hidden_size": None}}, "hidden_size"),
        ({"text_config": []}, "hidden_size"),
        ({"vision_config": "x"}, "vision_config"),
        ({"vision_config": VISION | {"patch_size": 16}}, "equal"),
        ({"vision_config": VISION | {"merge_kernel_size": [2, 1]}}, "equal"),
        ({"vision_config": VISION | {"pos_emb_width": 9}}, "8 x 9"),
        ({"vision_config": VISION | {"mm_projector_type": "mlp"}}, "'mlp'"),
    ],
)
def test_unsupported_models_are_refused(folder: Path, change: dict[str, Any], reason: str) -> None:
    edit(folder / "config.json", **change)
    with pytest.raises(UnsupportedCheckpoint, match=reason):
        read_layout(folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image_processor_type": "KimiVLImageProcessor"}, "KimiVL"),
        ({"do_resize": False}, "do_resize"),
        ({"resample": 2}, "resample 2"),
        ({"merge_size": 0}, "merge_size 0"),
        ({"max_patches": "many"}, "max_patches 'many'"),
        ({"size": {"max_height": 14, "max_width": 16}}, "size"),
        ({"size": {"max_height": 15, "max_width": 15}}, "multiple of 2"),
        ({"image_mean": [0.5, 0.5]}, "image_mean"),
        ({"media_proc_cfg": []}, "media_proc_cfg"),
        ({"fixed_output_tokens": -1}, "fixed_output_tokens"),
        ({"transparent_bg_config": {"pattern": "pink"}}, "pink"),
        ({"transparent_bg_config": 1}, "transparent_bg_config"),
        ({"transparent_bg_config": {}, "transparent_bg_fill_stage": "never"}, "never"),
        (
            {"transparent_bg_config": {"pattern": "chessboard", "chessboard_square_size": 0}},
            "chessboard_square_size 0",
        ),
        (
            {"transparent_bg_config": {"pattern": "chessboard", "chessboard_gray_value": 256}},
            "chessboard_gray_value 256",
        ),
    ],
)
def test_unsupported_processors_are_refused(
    folder: Path, change: dict[str, Any], reason: str
) -> None:
    edit(folder / "preprocessor_config.json", **change)
    with pytest.raises(UnsupportedCheckpoint, match=reason):
        read_layout(folder)


def test_a_folder_without_processor_file_is_refused(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(UnsupportedCheckpoint, match="preprocessor_config"):
        read_layout(folder)
