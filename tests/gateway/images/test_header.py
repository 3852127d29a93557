"""What files say about themselves, honest and not, before any pixel is decoded."""

import io
import random
import struct
import subprocess
import sys
import zlib

import pytest
from PIL import Image

from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.images.header import ImageHeader, read_header
from tests.gateway.files import (
    FILES,
    PARAM,
    orientation,
    png_chunk,
    png_of_size,
    png_with,
    source,
    tiff,
)
from tests.pictures import encoded, noise

pytestmark = pytest.mark.usefixtures("pillow")

LIMITS = ImageSettings()
MODES = {
    "png-i16": "I;16",
    "png-la": "LA",
    "png-1": "1",
    "jpeg-cmyk": "CMYK",
    "jpeg-l": "L",
    "gif-p": "P",
    "tiff-i16": "I;16",
}


def header(data: bytes, limits: ImageSettings = LIMITS) -> ImageHeader:
    return read_header(source(data), limits)


def rejected(data: bytes, limits: ImageSettings = LIMITS) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        header(data, limits)
    error = caught.value
    assert (error.index, error.param, error.retryable) == (3, PARAM, False)
    assert "0x" not in error.message
    assert len(error.message) < 200
    return error


@pytest.mark.parametrize("name", FILES)
def test_the_format_is_told_by_the_bytes(name: str) -> None:
    assert header(FILES[name]).format == name.partition("-")[0].upper()


def test_a_whole_header() -> None:
    assert header(FILES["png-rgba"]) == ImageHeader(
        format="PNG",
        width=53,
        height=38,
        orientation=1,
        has_alpha=True,
        is_plain_jpeg=False,
        num_frames=1,
        mode="RGBA",
    )
    assert header(FILES["jpeg-two"]) == ImageHeader(
        format="JPEG",
        width=95,
        height=67,
        orientation=1,
        has_alpha=False,
        is_plain_jpeg=True,
        num_frames=2,
        mode="RGB",
    )


@pytest.mark.parametrize(("name", "mode"), MODES.items())
def test_the_mode_is_told(name: str, mode: str) -> None:
    assert header(FILES[name]).mode == mode


@pytest.mark.parametrize("name", FILES)
def test_alpha_is_told_from_channels_and_from_keys(name: str) -> None:
    transparent = any(word in name for word in ("rgba", "la", "key", "table"))
    assert header(FILES[name]).has_alpha == transparent


@pytest.mark.parametrize("name", FILES)
def test_more_than_one_frame_is_told(name: str) -> None:
    assert header(FILES[name]).num_frames == (2 if "two" in name else 1)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("value", range(1, 9))
def test_the_displayed_size_follows_the_orientation(form: str, value: int) -> None:
    data = encoded(noise(1, (40, 30)), form, exif=orientation(value))
    assert header(data).displayed_size == ((40, 30) if value >= 5 else (30, 40))


@pytest.mark.parametrize("place", [b"IDAT", b"IEND"])
def test_the_orientation_of_a_png_counts_wherever_it_stands(place: bytes) -> None:
    chunk = png_chunk(b"eXIf", orientation(6).removeprefix(b"Exif\0\0"))
    assert header(png_with(chunk, place)).displayed_size == (61, 45)


def test_of_two_orientations_in_a_png_the_last_counts_as_for_the_library() -> None:
    empty, told = (png_chunk(b"eXIf", each) for each in (b"", orientation(6)[6:]))
    for chunks, value in ((empty + told, 6), (told + png_chunk(b"eXIf", orientation(3)[6:]), 3)):
        data = png_with(chunks)
        assert header(data).orientation == value
        assert Image.open(io.BytesIO(data)).getexif()[0x0112] == value


def test_width_and_height_are_as_stored() -> None:
    made = header(encoded(noise(1, (40, 30)), "JPEG", exif=orientation(6)))
    assert (made.width, made.height, made.orientation) == (40, 30, 6)


@pytest.mark.parametrize("exif", [b"Exif\0\0", b"Exif\0\0junk", b"Exif\0\0II*\0\xff\xff\xff\xff"])
def test_a_broken_exif_block_does_not_spoil_the_picture(exif: bytes) -> None:
    assert header(encoded(noise(1, (40, 30)), "JPEG", exif=exif)).orientation == 1


@pytest.mark.parametrize(
    "data",
    [
        b"", b"x", b"0123456789abcdef", b"<svg xmlns='http://www.w3.org/2000/svg'/>", b"%PDF-1.7",
        encoded(noise(2, (40, 30)), "AVIF"), encoded(noise(3, (40, 30)), "ICO"),
        encoded(noise(4, (40, 30)), "JPEG2000"), encoded(noise(5, (40, 30)), "PPM"),
        encoded(noise(6, (40, 30)), "TGA"), b"RIFF\x04\0\0\0WAVEfmt ",
    ],
)  # fmt: skip
def test_other_formats_are_refused_with_the_list_of_those_that_are_taken(data: bytes) -> None:
    error = rejected(data)
    assert (error.code, error.stage) == ("unsupported_format", "header")
    assert "PNG, JPEG, WEBP, GIF, BMP, TIFF" in error.message


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_known_range_are_refused(mode: str) -> None:
    error = rejected(encoded(noise(1, (40, 30)).convert(mode), "TIFF"))
    assert error.code == "unsupported_format"


def test_a_bmp_of_run_lengths_is_refused() -> None:
    data = bytearray(FILES["bmp-p"])
    data[30:34] = struct.pack("<I", 1)
    assert rejected(bytes(data)).code == "unsupported_format"


@pytest.mark.parametrize(
    "name", ["png-rgb", "jpeg-rgb", "webp-rgb", "gif-p", "bmp-rgb", "tiff-rgb"]
)
def test_the_first_bytes_alone_are_no_image(name: str) -> None:
    for end in range(12, 26):
        error = rejected(FILES[name][:end])
        assert (error.code, error.stage) == ("invalid_image", "header")


def test_a_picture_without_pixels_is_refused() -> None:
    for width, height in ((0, 5), (5, 0), (0, 0)):
        assert rejected(png_of_size(width, height)).code == "invalid_image"
    data = bytearray(FILES["gif-p"])
    data[6:10] = bytes(4)
    frame = data.index(b",")
    data[frame + 5 : frame + 9] = bytes(4)
    assert rejected(bytes(data)).code == "invalid_image"


def webp_of_size(width: int, height: int) -> bytes:
    """An extended WebP whose canvas is of this size."""
    canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    data = bytearray(FILES["webp-two"])
    assert data[12:16] == b"VP8X"
    data[24:30] = canvas
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "num_pixels"),
    [
        (png_of_size(16_000, 16_000), 256_000_000),
        (png_of_size(8001, 8000), 64_008_000),
        (webp_of_size(16_383, 16_383), 268_402_689),
        (webp_of_size(8001, 8000), 64_008_000),
    ],
)
def test_too_many_pixels_are_refused_with_both_numbers(data: bytes, num_pixels: int) -> None:
    error = rejected(data)
    assert isinstance(error, ImageTooLarge)
    assert (error.stage, error.status) == ("limit", 413)
    assert f"a picture of {num_pixels} pixels; the limit is 64000000" in error.message


def test_exactly_the_limit_of_pixels_is_taken() -> None:
    assert header(png_of_size(8000, 8000)).width == 8000


@pytest.mark.parametrize(("width", "height"), [(16_385, 3), (3, 16_385)])
def test_a_side_over_the_limit_is_refused_with_both_numbers(width: int, height: int) -> None:
    error = rejected(png_of_size(width, height))
    assert isinstance(error, ImageTooLarge)
    assert "16385" in error.message
    assert "16384" in error.message


def test_small_limits_hold_without_any_help_from_the_library() -> None:
    error = rejected(FILES["png-rgb"], ImageSettings(max_image_pixels=2000))
    assert isinstance(error, ImageTooLarge)
    assert "2745 pixels; the limit is 2000" in error.message


def test_a_tiff_of_huge_tiles_is_refused() -> None:
    entries = [(256, 4, 1, 16), (257, 4, 1, 16), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1),
               (277, 3, 1, 1), (322, 4, 1, 40_000), (323, 4, 1, 40_000), (324, 4, 1, 8),
               (325, 4, 1, 60)]  # fmt: skip
    error = rejected(tiff(*entries, extra=bytes(100)))
    assert isinstance(error, ImageTooLarge)
    assert "1600000000" in error.message


@pytest.mark.parametrize("kind", [b"zTXt", b"iCCP", b"tEXt", b"iTXt"])
def test_no_text_of_a_png_is_unpacked_or_spoils_the_picture(kind: bytes) -> None:
    chunk = png_chunk(kind, b"name\0\0" + zlib.compress(bytes(5_000_000)))
    assert header(png_with(chunk)) == header(FILES["png-rgb"])
    assert header(png_with(chunk, b"IEND")) == header(FILES["png-rgb"])


def test_floods_of_blocks_are_refused_by_their_number() -> None:
    error = rejected(png_with(png_chunk(b"teSt") * 20_000))
    assert error.code == "invalid_image"
    assert "16384 chunks" in error.message
    jpeg = FILES["jpeg-rgb"]
    assert "4096 segments" in rejected(jpeg[:2] + b"\xff\xe5\0\2" * 5000 + jpeg[2:]).message


def flips(data: bytes, seed: int, count: int) -> list[bytes]:
    """The file `count` times, each with one to three random bytes changed."""
    random_source = random.Random(seed)
    changed = []
    for _ in range(count):
        copy = bytearray(data)
        for _ in range(random_source.randrange(1, 4)):
            copy[random_source.randrange(min(len(copy), 400))] = random_source.randrange(256)
        changed.append(bytes(copy))
    return changed


@pytest.mark.parametrize("name", FILES)
def test_changed_bytes_give_a_header_or_a_rejection(name: str) -> None:
    for data in flips(FILES[name], len(name), 60):
        try:
            made = header(data)
        except ImageRejected:
            continue
        assert made.width * made.height <= LIMITS.max_image_pixels


def test_random_bytes_after_a_good_start_give_a_header_or_a_rejection() -> None:
    random_source = random.Random(3)
    for name in FILES:
        start = FILES[name][: random_source.randrange(12, 60)]
        try:
            header(start + random_source.randbytes(300))
        except ImageRejected as error:
            assert error.code in {"invalid_image", "unsupported_format", "image_too_large"}  # noqa: PT017 - most are refused, some are not


@pytest.mark.slow
def test_the_gateway_side_of_images_loads_no_model_library() -> None:
    names = "schemas.schema, prompts.prompt, images.fetch, images.header, encoding.payload"
    modules = ", ".join(f"gateway.{name}" for name in names.split(", "))
    code = (
        f"import sys\nimport {modules}\n"
        "heavy = {'torch', 'transformers', 'torchvision'} & set(sys.modules)\n"
        "sys.exit(bool(heavy))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
