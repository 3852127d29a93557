"""Patches are bit-equal to those of the checkpoint's own processor, in either order."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor

from tests.checkpoints import make_checkpoint
from tests.plans import make_plan
from workers.families import ground
from workers.families.plan import Background, ImagePlan
from workers.families.qwen_vl.layout import QwenLayout, read_layout
from workers.vision.preprocess import Preprocessor, cut, resized

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
SIZES = [(40, 60), (61, 33), (224, 224), (257, 190), (30, 400), (311, 95), (128, 129), (500, 333)]


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])  # one per mean and patch size
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("preprocess"), request.param)


def noise(height: int, width: int) -> Pixels:
    random = np.random.default_rng(height * 1000 + width)
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def slope(height: int, width: int) -> Pixels:
    rows, columns = np.mgrid[0:height, 0:width]
    channels = [rows * 255 / height, columns * 255 / width, (rows + columns) % 256]
    pixels: Pixels = np.stack(channels, axis=-1).astype(np.uint8)
    return pixels


def squares(height: int, width: int) -> Pixels:
    rows, columns = np.mgrid[0:height, 0:width]
    light = (rows // 7 + columns // 5) % 2
    pixels: Pixels = (light[..., None] * [255, 200, 3]).astype(np.uint8)
    return pixels


def patches_of(pixels: Tensor, plan: ImagePlan) -> Tensor:
    return Preprocessor(torch.device("cpu")).normalised(cut(pixels, plan), plan)


def patches_from_source(layout: QwenLayout, source: Image.Image) -> Tensor:
    plan = layout.plan((source.height, source.width), "cpu")
    height, width = plan.resized_size
    resized = source.resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(resized))
    return patches_of(pixels, plan)


@pytest.mark.parametrize("paint", [noise, slope, squares])
def test_patches_are_bit_equal_to_the_processors(checkpoint: Path, paint: Any) -> None:
    layout = read_layout(checkpoint)
    processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(checkpoint)
    for height, width in SIZES:
        source = Image.fromarray(paint(height, width))

        expected = processor(source, return_tensors="pt")["pixel_values"]

        patches = patches_from_source(layout, source)
        assert patches.dtype == torch.float32
        assert torch.equal(patches.view(torch.int32), expected.view(torch.int32))


def other_mean(plan: ImagePlan) -> ImagePlan:
    return msgspec.structs.replace(plan, mean=(plan.mean[0] + 1e-6, *plan.mean[1:]))


def other_rescale(plan: ImagePlan) -> ImagePlan:
    return msgspec.structs.replace(plan, rescale=1 / 256)


@pytest.mark.parametrize("perturb", [other_mean, other_rescale])
def test_a_slightly_wrong_plan_is_noticed(checkpoint: Path, perturb: Any) -> None:
    plan = read_layout(checkpoint).plan((56, 64), "cpu")
    pixels = torch.from_numpy(noise(*plan.resized_size))

    assert not torch.equal(patches_of(pixels, plan), patches_of(pixels, perturb(plan)))


def test_one_pixel_changes_one_patch(checkpoint: Path) -> None:
    plan = read_layout(checkpoint).plan((90, 150), "cpu")
    pixels = torch.from_numpy(noise(*plan.resized_size))
    before = patches_of(pixels, plan)
    pixels[17, 40, 2] ^= 1

    changed = (patches_of(pixels, plan) != before).any(dim=1)

    assert int(changed.sum()) == 1


def test_padding_is_raw_black_at_the_right_and_bottom(checkpoint: Path) -> None:
    plan = read_layout(checkpoint).plan((112, 160), "cpu")
    height, width = plan.padded_size
    small = (height - plan.patch_size, width - 3)
    pixels = torch.from_numpy(noise(height, width))
    pixels[small[0] :] = 0
    pixels[:, small[1] :] = 0
    padded = msgspec.structs.replace(plan, resized_size=small)

    patches = patches_of(pixels[: small[0], : small[1]].contiguous(), padded)

    assert torch.equal(patches, patches_of(pixels, plan))


# ---- from source pixels, and in either order

CHESSBOARD = Background(stage="after_resize", square=8, first=(255,) * 3, second=(180,) * 3)


def orders() -> list[ImagePlan]:
    """Plans for one padded picture of 4 by 6 patches, two by two to a token."""
    sizes = {"resized_size": (50, 80), "padded_size": (56, 84), "grid": (1, 4, 6)}
    return [make_plan((50, 80), patch_order=order, **sizes) for order in ("raster", "merged")]


def by_hand(pixels: Pixels, plan: ImagePlan) -> list[Pixels]:
    """The plan's patches, one after the other, each [3, side, side]."""
    side, merge = plan.patch_size, plan.merge_size
    padded = np.zeros((*plan.padded_size, 3), dtype=np.uint8)
    padded[: pixels.shape[0], : pixels.shape[1]] = pixels
    places = [(row, column) for row in range(plan.grid[1]) for column in range(plan.grid[2])]
    if plan.patch_order == "merged":
        places.sort(key=lambda place: (place[0] // merge, place[1] // merge, *place))
    return [
        padded[row * side : (row + 1) * side, column * side : (column + 1) * side].transpose(
            2, 0, 1
        )
        for row, column in places
    ]


@pytest.mark.parametrize("plan", orders(), ids=lambda plan: plan.patch_order)
def test_patches_come_in_the_order_of_the_plan(plan: ImagePlan) -> None:
    pixels = noise(50, 80)
    patches = cut(torch.from_numpy(pixels), plan).numpy()
    expected = np.stack(by_hand(pixels, plan)).reshape(24, 3, 196)
    assert np.array_equal(patches, expected)


def test_the_two_orders_differ() -> None:
    first, second = (cut(torch.from_numpy(noise(50, 80)), plan) for plan in orders())
    assert not torch.equal(first, second)
    assert sorted(patch.sum() for patch in first) == sorted(patch.sum() for patch in second)


@pytest.mark.parametrize("frames", [1, 2, 3])
def test_a_still_image_is_the_same_in_every_frame(frames: int) -> None:
    plan = msgspec.structs.replace(orders()[0], temporal_patch_size=frames)
    levels = cut(torch.from_numpy(noise(50, 80)), plan)
    patches = Preprocessor(torch.device("cpu")).normalised(levels, plan)
    # mean and std are 0.5: a level v becomes 2 * v / 255 - 1.
    expected = (levels.double() / 255).float() * 2 - 1
    for frame in patches.view(24, 3, frames, 196).unbind(dim=2):
        assert torch.equal(frame, expected)


def see_through(height: int, width: int) -> Pixels:
    random = np.random.default_rng([height, width])
    return random.integers(0, 256, (height, width, 4), dtype=np.uint8)


def by_numpy(pixels: Pixels, plan: ImagePlan) -> Pixels:
    """Pillow's resizing and the ground's own table, in the order of the plan."""
    background = plan.background
    assert background is not None
    if background.stage == "before_resize":
        pixels = ground.lay_on(pixels, background)
    height, width = plan.resized_size
    picture = Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC)
    values: Pixels = np.array(picture)
    return ground.lay_on(values, background) if background.stage == "after_resize" else values


@pytest.mark.parametrize("stage", ["before_resize", "after_resize"])
@pytest.mark.parametrize("size", [(28, 56), (61, 90), (112, 40)])
def test_transparent_pixels_are_laid_down_at_the_stage_of_the_plan(
    stage: Any, size: tuple[int, int]
) -> None:
    background = msgspec.structs.replace(CHESSBOARD, stage=stage)
    plan = make_plan((61, 45), resized_size=size, background=background)
    pixels = see_through(61, 45)
    assert np.array_equal(resized(torch.from_numpy(pixels), plan).numpy(), by_numpy(pixels, plan))


def test_the_stage_is_noticed() -> None:
    early = msgspec.structs.replace(CHESSBOARD, stage="before_resize")
    plans = [make_plan((61, 45), resized_size=(30, 22), background=each)
             for each in (CHESSBOARD, early)]  # fmt: skip
    pixels = torch.from_numpy(see_through(61, 45))
    assert not torch.equal(resized(pixels, plans[0]), resized(pixels, plans[1]))


def test_without_a_ground_alpha_is_dropped_before_resizing() -> None:
    plan = make_plan((61, 45), resized_size=(30, 22), background=None)
    pixels = torch.from_numpy(see_through(61, 45))
    assert torch.equal(resized(pixels, plan), resized(pixels[..., :3].contiguous(), plan))


def test_opaque_pixels_come_out_as_rgb_pixels_do() -> None:
    plan = make_plan((61, 45), resized_size=(30, 22), background=CHESSBOARD)
    pixels = see_through(61, 45)
    pixels[..., 3] = 255
    rgb = torch.from_numpy(pixels[..., :3].copy())
    assert torch.equal(resized(torch.from_numpy(pixels), plan), resized(rgb, plan))
