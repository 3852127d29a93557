"""Patches are bit-equal to the public reference's, and as near to the library's as it allows."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor

from tests.kimi_checkpoint import make_kimi_checkpoint
from tests.kimi_patches import reference_patches
from workers.families.kimi_k25.layout import KimiLayout, read_layout
from workers.vision.preprocess import Preprocessor, cut, resized

UNRESIZED = [(40, 60), (28, 28), (150, 61), (14, 196), (1, 1), (29, 113)]
RESIZED = [(224, 224), (257, 190), (30, 400), (500, 333), (900, 70)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kimi_checkpoint(tmp_path_factory.mktemp("patches"))


def noise(height: int, width: int) -> Image.Image:
    random = np.random.default_rng(height * 1000 + width)
    return Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))


def our_patches(image: Image.Image, layout: KimiLayout) -> Tensor:
    plan = layout.plan((image.height, image.width), "cpu")
    height, width = plan.resized_size
    pixels = np.array(image.resize((width, height), Image.Resampling.BICUBIC))
    return Preprocessor(torch.device("cpu")).normalised(cut(torch.from_numpy(pixels), plan), plan)


@pytest.mark.parametrize("size", UNRESIZED + RESIZED, ids=str)
def test_patches_are_bit_equal_to_the_public_references(
    checkpoint: Path, size: tuple[int, int]
) -> None:
    layout = read_layout(checkpoint)
    image = noise(*size)
    expected = torch.from_numpy(reference_patches(image, layout)).flatten(1)
    patches = our_patches(image, layout)
    assert patches.dtype == torch.float32
    assert torch.equal(patches.view(torch.int32), expected.view(torch.int32))


@pytest.mark.parametrize("size", UNRESIZED, ids=str)
def test_patches_of_unresized_pictures_are_the_librarys(
    checkpoint: Path, size: tuple[int, int]
) -> None:
    processor = transformers.Kimi_K25ImageProcessor.from_pretrained(checkpoint)
    image = noise(*size)
    theirs = processor(image, return_tensors="pt")["pixel_values"].flatten(1)
    ours = our_patches(image, read_layout(checkpoint))
    # It joins rescaling and normalising into one step, which rounds once less.
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1.2e-7)


@pytest.mark.parametrize("size", RESIZED, ids=str)
def test_patches_of_resized_pictures_are_within_two_levels_of_the_librarys(
    checkpoint: Path, size: tuple[int, int]
) -> None:
    processor = transformers.Kimi_K25ImageProcessor.from_pretrained(checkpoint)
    image = noise(*size)
    theirs = processor(image, return_tensors="pt")["pixel_values"].flatten(1)
    difference = (our_patches(image, read_layout(checkpoint)) - theirs).abs() * 127.5
    assert difference.max() < 2.01
    assert difference.mean() < 0.1


@pytest.fixture(params=["before_resize", "after_resize"])
def chessboard(request: pytest.FixtureRequest, checkpoint: Path, tmp_path: Path) -> KimiLayout:
    """The layout of a checkpoint that names K3's ground."""
    public = {
        "in_patch_limit": 120,
        "patch_limit_on_one_side": 14,
        "transparent_bg_config": {
            "pattern": "chessboard",
            "chessboard_square_size": 8,
            "chessboard_square_on_top_left": True,
            "chessboard_white_value": 255,
            "chessboard_gray_value": 180,
        },
        "transparent_bg_fill_stage": request.param,
    }
    (tmp_path / "config.json").write_bytes((checkpoint / "config.json").read_bytes())
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"media_proc_cfg": public}))
    return read_layout(tmp_path)


@pytest.mark.parametrize("size", UNRESIZED + RESIZED, ids=str)
def test_transparent_pictures_lie_on_the_board_as_in_the_public_reference(
    chessboard: KimiLayout, size: tuple[int, int]
) -> None:
    image = noise(*size)
    image.putalpha(noise(*size[::-1]).convert("L").transpose(Image.Transpose.TRANSPOSE))
    plan = chessboard.plan(size, "cpu")
    pixels = resized(torch.from_numpy(np.array(image)), plan)
    patches = Preprocessor(torch.device("cpu")).normalised(cut(pixels, plan), plan)
    expected = torch.from_numpy(reference_patches(image, chessboard)).flatten(1)
    assert torch.equal(patches.view(torch.int32), expected.view(torch.int32))
    opaque = torch.from_numpy(reference_patches(image.convert("RGB"), chessboard)).flatten(1)
    assert not torch.equal(patches, opaque)
