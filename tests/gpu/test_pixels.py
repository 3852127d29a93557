"""Pixels on a CUDA device have the bits that they have on the CPU, which are Pillow's."""

import numpy as np
import pytest
import torch

from tests.plans import make_plan
from tests.workers.vision.resizing import Case, by_pillow, draw_picture, make_cases, to_array
from tests.workers.vision.test_background import GROUNDS, by_reference, every_level_and_alpha
from workers.devices import count_gpus
from workers.families.plan import Background, ImagePlan
from workers.vision.background import lay_on
from workers.vision.preprocess import Preprocessor, cut, resized
from workers.vision.resample import resize

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]
CUDA = torch.device("cuda:0")


def assert_pillows_bits(case: Case, is_noise: bool) -> None:
    picture = draw_picture(case, is_noise)
    made = resize(torch.from_numpy(to_array(picture)).to(CUDA), case.target, case.first)
    assert made.device == CUDA
    assert np.array_equal(made.cpu().numpy(), by_pillow(picture, case.target)), str(case)


def test_every_mode_and_size_has_pillows_bits() -> None:
    for case in make_cases():
        for is_noise in (True, False):
            assert_pillows_bits(case, is_noise)


@pytest.mark.parametrize(
    "case",
    [
        Case("RGB", (2000, 3000), (728, 1092)),
        Case("RGBA", (5000, 3000), (700, 1000)),  # begins vertically
        Case("RGBA", (3000, 3000), (3400, 3400)),  # in parts, so that memory stays bounded
        Case("L", (16_000, 90), (28, 28)),
    ],
    ids=str,
)
def test_large_pictures_have_pillows_bits(case: Case) -> None:
    assert_pillows_bits(case, is_noise=True)


def test_floats_on_the_device_are_noticed() -> None:
    case = Case("RGB", (83, 61), (40, 37))
    picture = draw_picture(case, is_noise=True)
    pixels = torch.from_numpy(to_array(picture)).to(CUDA).permute(2, 0, 1)[None].float()
    floats = torch.nn.functional.interpolate(pixels, case.target, mode="bicubic", antialias=True)
    rounded = floats.round().clamp(0, 255).to(torch.uint8)[0].permute(1, 2, 0).cpu().numpy()
    assert not np.array_equal(rounded, by_pillow(picture, case.target))


@pytest.mark.parametrize("background", GROUNDS)
def test_transparent_pictures_lie_as_by_the_references_floats(
    background: Background,
) -> None:
    pixels = every_level_and_alpha()
    made = lay_on(torch.from_numpy(pixels).to(CUDA), background)
    assert np.array_equal(made.cpu().numpy(), by_reference(pixels, background))


def plans() -> list[ImagePlan]:
    """From 300 by 200 pixels to 14 by 10 patches behind some padding."""
    sizes = {"resized_size": (190, 130), "padded_size": (196, 140), "grid": (1, 14, 10)}
    return [
        make_plan((300, 200), patch_order=order, background=background, **sizes)
        for order in ("raster", "merged")
        for background in (None, *GROUNDS)
    ]


@pytest.mark.parametrize("num_channels", [3, 4])
def test_patches_from_the_source_have_the_cpus_bits(num_channels: int) -> None:
    random = np.random.default_rng(num_channels)
    pixels = torch.from_numpy(random.integers(0, 256, (300, 200, num_channels), dtype=np.uint8))
    for plan in plans():
        on_cpu, on_cuda = (
            Preprocessor(device).normalised(cut(resized(pixels.to(device), plan), plan), plan)
            for device in (torch.device("cpu"), CUDA)
        )
        assert torch.equal(on_cuda.cpu().view(torch.int32), on_cpu.view(torch.int32))
