"""Damaged files of every kind: pixels or a rejection that names the image, never anything else."""

import random

import numpy as np
import pytest

from gateway.errors import ImageRejected
from tests.gateway.decoding import decode
from tests.gateway.files import FILES, PARAM

pytestmark = pytest.mark.usefixtures("pillow")


@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_anywhere_is_refused_or_whole(name: str) -> None:
    data = FILES[name]
    whole = decode(data)
    stages = set()
    for end in [*range(0, len(data), max(1, len(data) // 25)), len(data) - 1]:
        try:
            pixels = decode(data[:end])
        except ImageRejected as error:
            stages.add(error.stage)
        else:
            assert np.array_equal(pixels, whole), f"cut at {end} of {len(data)}"
    assert stages <= {"header", "decode"}
    # These begin with the header; the library writes some TIFFs the other way round.
    assert "decode" in stages or name.startswith(("webp", "tiff"))


def test_a_refusal_names_the_image_and_nothing_of_the_library() -> None:
    with pytest.raises(ImageRejected) as caught:
        decode(FILES["jpeg-rgb"][:-400])
    error = caught.value
    assert (error.index, error.stage, error.code, error.param) == (
        3,
        "decode",
        "invalid_image",
        PARAM,
    )
    assert error.message == "image 3: damaged or incomplete"


def _decode_or_refuse(data: bytes) -> bool:
    try:
        decode(data, (28, 28))
    except ImageRejected:
        return False
    return True


def _fuzz(name: str, count: int) -> int:
    """Decode the file with random bytes changed; return how often it went well."""
    random_source = random.Random(name)
    num_good = 0
    for _ in range(count):
        data = bytearray(FILES[name])
        for _ in range(random_source.choice((1, 1, 2, 8))):
            data[random_source.randrange(len(data))] ^= 1 << random_source.randrange(8)
        num_good += _decode_or_refuse(bytes(data))
    return num_good


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_give_pixels_or_a_rejection(name: str) -> None:
    _fuzz(name, 15)


@pytest.mark.slow
def test_thousands_of_flipped_bits_give_pixels_or_a_rejection() -> None:
    num_good = sum(_fuzz(name, 150) for name in FILES)
    assert 500 < num_good < 150 * len(FILES)
