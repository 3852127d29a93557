"""Transparent pictures on their ground: a reference's floats, out of a table, on both sides."""

import numpy as np
import pytest
import torch

from tests.workers.vision.resizing import Pixels
from workers.families import ground
from workers.families.plan import Background, plain
from workers.vision.background import lay_on

GROUNDS = [
    plain((255, 255, 255)),
    plain((12, 200, 90)),
    Background(stage="after_resize", square=8, first=(255,) * 3, second=(180,) * 3),
    Background(stage="after_resize", square=5, first=(9, 80, 255), second=(200, 0, 31)),
]


def every_level_and_alpha() -> Pixels:
    """RGBA [256, 256, 4]: alphas downwards, levels to the right, other ones per channel."""
    alphas, levels = np.mgrid[0:256, 0:256]
    channels = [levels, (levels + 85) % 256, (levels * 7 + 3) % 256, alphas]
    return np.stack(channels, axis=-1).astype(np.uint8)


def by_reference(pixels: Pixels, background: Background) -> Pixels:
    """As a checkpoint's own processor does it: a painted board, then float32, then cut off."""
    height, width, _ = pixels.shape
    board = np.empty((height, width, 3), dtype=np.uint8)
    for top in range(0, height, background.square):
        for left in range(0, width, background.square):
            is_first = (top // background.square + left // background.square) % 2 == 0
            colour = background.first if is_first else background.second
            board[top : top + background.square, left : left + background.square] = colour
    alpha = pixels[:, :, 3:].astype(np.float32) / 255.0
    mixed = alpha * pixels[:, :, :3] + (1 - alpha) * board
    result: Pixels = mixed.astype(np.uint8)
    return result


@pytest.mark.parametrize("background", GROUNDS)
def test_every_level_and_alpha_is_the_references(background: Background) -> None:
    pixels = every_level_and_alpha()
    assert np.array_equal(ground.lay_on(pixels, background), by_reference(pixels, background))


@pytest.mark.parametrize("background", GROUNDS)
@pytest.mark.parametrize("size", [(1, 1), (3, 40), (61, 33)])
def test_gateway_and_owner_lay_alike(background: Background, size: tuple[int, int]) -> None:
    pixels = np.random.default_rng(size).integers(0, 256, (*size, 4), dtype=np.uint8)
    on_tensors = lay_on(torch.from_numpy(pixels), background)
    assert np.array_equal(on_tensors.numpy(), ground.lay_on(pixels, background))


def test_a_picture_in_parts_keeps_its_board(monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (50, 21, 4), dtype=np.uint8)
    monkeypatch.setattr("workers.vision.background._CHUNK_VALUES", 3 * 21 * 7)  # 7 rows at a time
    for background in GROUNDS:
        on_tensors = lay_on(torch.from_numpy(pixels), background)
        assert np.array_equal(on_tensors.numpy(), by_reference(pixels, background))


def test_the_first_colour_is_in_the_corner() -> None:
    clear = np.zeros((10, 11, 4), dtype=np.uint8)
    board = ground.lay_on(clear, GROUNDS[3])
    assert board[0, 0].tolist() == board[4, 4].tolist() == board[5, 5].tolist() == [9, 80, 255]
    assert board[0, 5].tolist() == board[5, 0].tolist() == board[0, 9].tolist() == [200, 0, 31]


def test_rounding_to_the_nearest_level_is_noticed() -> None:
    pixels = every_level_and_alpha().astype(np.float64)
    alpha = pixels[:, :, 3:] / 255
    rounded = np.rint(alpha * pixels[:, :, :3] + (1 - alpha) * 255).astype(np.uint8)
    assert not np.array_equal(rounded, by_reference(every_level_and_alpha(), GROUNDS[0]))
