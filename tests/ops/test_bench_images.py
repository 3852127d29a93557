"""Pictures for load tests: new ones every time, of the size asked for."""

import io

import numpy as np
from PIL import Image

from ops.bench.images import Camera, Size


def test_no_two_pictures_share_bytes_or_pixels() -> None:
    camera = Camera(seed=1)
    files = [camera.take(Size(60, 44)) for _ in range(40)]
    pixels = {Image.open(io.BytesIO(file)).tobytes() for file in files}
    assert len(set(files)) == len(pixels) == 40


def test_another_seed_repeats_no_picture() -> None:
    first, second = Camera(seed=1), Camera(seed=2)
    size = Size(52, 40)
    assert not {first.take(size) for _ in range(20)} & {second.take(size) for _ in range(20)}


def test_the_same_seed_takes_the_same_pictures() -> None:
    first, second = Camera(seed=3), Camera(seed=3)
    size = Size(38, 46)
    assert [first.take(size) for _ in range(3)] == [second.take(size) for _ in range(3)]


def test_a_picture_has_the_size_asked_for_even_below_the_stamp() -> None:
    for size in (Size(9, 5), Size(70, 31)):
        with Image.open(io.BytesIO(Camera(seed=4).take(size))) as picture:
            assert picture.size == (size.width, size.height)
            assert picture.format == "JPEG"


def test_a_picture_costs_as_many_bits_as_a_photograph() -> None:
    size = Size(320, 240)
    bits = 8 * len(Camera(seed=5).take(size)) / (size.width * size.height)
    assert 2.0 < bits < 3.5


def test_a_picture_is_not_flat() -> None:
    with Image.open(io.BytesIO(Camera(seed=6).take(Size(96, 80)))) as picture:
        assert np.asarray(picture).std() > 20
