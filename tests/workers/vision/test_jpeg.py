"""Files are decoded as Pillow decodes them, turned as EXIF says, and fail one by one."""

import io
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from tests.pictures import encoded, noise
from workers.vision.jpeg import decode_jpegs, upright

CPU = torch.device("cpu")
FORMS: list[tuple[str, dict[str, Any]]] = [
    ("RGB", {"quality": 90}),
    ("RGB", {"quality": 75, "subsampling": 2}),
    ("RGB", {"quality": 95, "subsampling": 0, "progressive": True}),
    ("RGB", {"quality": 60, "restart_marker_rows": 1}),
    ("L", {"quality": 80}),
]


def file_of(image: Image.Image, **options: Any) -> bytes:
    return encoded(image, "JPEG", **options)


def tensor(data: bytes) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def by_pillow(data: bytes) -> Any:
    return np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))


@pytest.mark.parametrize(("mode", "options"), FORMS)
@pytest.mark.parametrize("size", [(97, 61), (16, 200), (1, 1), (8, 8)])
def test_pixels_are_pillows(mode: str, options: dict[str, Any], size: tuple[int, int]) -> None:
    data = file_of(noise(sum(size), size).convert(mode), **options)

    (pixels,) = decode_jpegs([tensor(data)], CPU)

    assert pixels is not None
    assert pixels.dtype == torch.uint8
    assert np.array_equal(pixels.numpy(), by_pillow(data))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_pillow_turns_them(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = file_of(noise(3, (50, 34)), exif=exif)
    (stored,) = decode_jpegs([tensor(data)], CPU)
    assert stored is not None

    pixels = upright(stored, orientation)

    assert stored.shape == (34, 50, 3)  # the decoder itself does not listen to EXIF
    assert np.array_equal(pixels.numpy(), by_pillow(data))


def test_every_orientation_is_another_picture() -> None:
    pixels = torch.arange(2 * 2 * 3, dtype=torch.uint8).view(2, 2, 3)

    assert len({bytes(upright(pixels, each).flatten().tolist()) for each in range(1, 9)}) == 8


def broken_files() -> list[bytes]:
    whole = file_of(noise(5, (90, 70)))
    return [
        whole[: len(whole) // 2],
        whole[:20],
        b"\xff\xd8\xff\xd9",
        b"",
        b"GIF89a" + bytes(100),
        encoded(noise(6, (30, 30)), "PNG"),
    ]


@pytest.mark.parametrize("broken", broken_files())
def test_a_file_that_cannot_be_read_fails_alone(broken: bytes) -> None:
    good = [file_of(noise(seed, (40 + seed, 30))) for seed in (7, 8)]

    results = decode_jpegs([tensor(good[0]), tensor_or_empty(broken), tensor(good[1])], CPU)

    assert results[1] is None
    for data, pixels in zip(good, (results[0], results[2]), strict=True):
        assert pixels is not None
        assert np.array_equal(pixels.numpy(), by_pillow(data))


def tensor_or_empty(data: bytes) -> Tensor:
    return tensor(data) if data else torch.empty(0, dtype=torch.uint8)


def test_nothing_to_decode_gives_nothing() -> None:
    assert decode_jpegs([], CPU) == []
