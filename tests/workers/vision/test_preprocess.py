"""Patches are bit-equal to those of the checkpoint's own processor."""

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
from workers.families.plan import ImagePlan
from workers.families.qwen_vl.layout import QwenLayout, read_layout
from workers.vision.preprocess import Preprocessor

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


def patches_from_source(layout: QwenLayout, source: Image.Image) -> Tensor:
    plan = layout.plan((source.height, source.width), "cpu")
    height, width = plan.resized_size
    resized = source.resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(resized))
    return Preprocessor(torch.device("cpu")).patches(pixels, plan)


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
    preprocessor = Preprocessor(torch.device("cpu"))

    assert not torch.equal(
        preprocessor.patches(pixels, plan), preprocessor.patches(pixels, perturb(plan))
    )


def test_one_pixel_changes_one_patch(checkpoint: Path) -> None:
    plan = read_layout(checkpoint).plan((90, 150), "cpu")
    pixels = torch.from_numpy(noise(*plan.resized_size))
    preprocessor = Preprocessor(torch.device("cpu"))
    before = preprocessor.patches(pixels, plan)
    pixels[17, 40, 2] ^= 1

    changed = (preprocessor.patches(pixels, plan) != before).any(dim=1)

    assert int(changed.sum()) == 1


def test_padding_is_raw_black_at_the_right_and_bottom(checkpoint: Path) -> None:
    plan = read_layout(checkpoint).plan((112, 160), "cpu")
    height, width = plan.padded_size
    small = (height - plan.patch_size, width - 3)
    pixels = torch.from_numpy(noise(height, width))
    pixels[small[0] :] = 0
    pixels[:, small[1] :] = 0
    padded = msgspec.structs.replace(plan, resized_size=small)
    preprocessor = Preprocessor(torch.device("cpu"))

    patches = preprocessor.patches(pixels[: small[0], : small[1]].contiguous(), padded)

    assert torch.equal(patches, preprocessor.patches(pixels, plan))
