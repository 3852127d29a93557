"""Resizing on tensors gives Pillow's bits, and what is nearly right does not."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.workers.vision.resizing import Case, by_pillow, draw_picture, make_cases, to_array
from workers.families.plan import Pass
from workers.vision.resample import find_weights, resize

CASES = make_cases()


def resized(case: Case, is_noise: bool) -> Tensor:
    return resize(torch.from_numpy(to_array(draw_picture(case, is_noise))), case.target, case.first)


def expected(case: Case, is_noise: bool) -> Tensor:
    return torch.from_numpy(by_pillow(draw_picture(case, is_noise), case.target))


def test_the_cases_are_many_and_different() -> None:
    assert len(set(CASES)) == len(CASES) > 400
    assert {case.first for case in CASES} == {"horizontal", "vertical"}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_mode_and_size_has_pillows_bits(case: Case) -> None:
    for is_noise in (True, False):
        assert torch.equal(resized(case, is_noise), expected(case, is_noise))


@pytest.mark.slow
def test_a_thousand_larger_pictures_have_pillows_bits() -> None:
    draw = random.Random(5)
    for _ in range(1000):
        sides = [round(2 ** draw.uniform(0, 9)) for _ in range(4)]
        sizes = (sides[0], sides[1]), (sides[2], sides[3])
        case = Case(draw.choice(("L", "LA", "RGB", "RGBA")), *sizes)
        assert torch.equal(resized(case, True), expected(case, True)), str(case)


@pytest.mark.parametrize("case", CASES[::9], ids=str)
def test_a_picture_that_is_resized_in_parts_has_the_same_bits(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.vision.resample._CPU_VALUES", 700)
    assert torch.equal(resized(case, True), expected(case, True))


def test_a_picture_of_the_right_size_is_given_back_as_it_is() -> None:
    pixels = torch.randint(0, 256, (20, 30, 4), dtype=torch.uint8)
    assert resize(pixels, (20, 30), "horizontal") is pixels


def test_sums_of_weights_times_levels_fit_into_32_bits() -> None:
    draw = random.Random(7)
    for _ in range(300):
        _, weights = find_weights(*(round(2 ** draw.uniform(0, 11)) for _ in range(2)))
        assert int(np.abs(weights.astype(np.int64)).sum(axis=1).max()) * 255 + (1 << 21) < 1 << 31


# ---- what must not pass

HARD = Case("RGB", (83, 61), (40, 37))
HARD_ALPHA = Case("RGBA", (83, 61), (40, 37))


def test_floats_are_noticed() -> None:
    pixels = torch.from_numpy(to_array(draw_picture(HARD, True))).permute(2, 0, 1)[None].float()
    floats = torch.nn.functional.interpolate(pixels, HARD.target, mode="bicubic", antialias=True)
    rounded = floats.round().clamp(0, 255).to(torch.uint8)[0].permute(1, 2, 0)
    assert not torch.equal(rounded, expected(HARD, True))


def test_the_other_order_of_passes_is_noticed() -> None:
    other: dict[Pass, Pass] = {"horizontal": "vertical", "vertical": "horizontal"}
    for target in ((40, 37), (20, 37)):  # one that begins horizontally, one that does not
        case = Case("RGB", HARD.source, target)
        picture = draw_picture(case, True)
        pixels = torch.from_numpy(to_array(picture))
        assert torch.equal(resize(pixels, target, case.first), expected(case, True))
        assert not torch.equal(resize(pixels, target, other[case.first]), expected(case, True))


def test_colours_that_are_not_weighed_by_alpha_are_noticed() -> None:
    pixels = torch.from_numpy(to_array(draw_picture(HARD_ALPHA, True)))
    straight = resize(pixels[..., :3].contiguous(), HARD_ALPHA.target, HARD_ALPHA.first)
    assert torch.equal(resized(HARD_ALPHA, True), expected(HARD_ALPHA, True))
    assert not torch.equal(straight, expected(HARD_ALPHA, True)[..., :3])
