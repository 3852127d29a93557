"""Pixels as the plan wants them, from every kind of file."""

import io
import struct
import zlib

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image, ImageCms, ImageOps, TiffImagePlugin

from gateway.images.header import read_header
from tests.gateway.decoding import LIMITS, Pixels, decode
from tests.gateway.files import (
    FILES,
    gray16,
    orientation,
    png_chunk,
    png_with,
    see_through,
    source,
)
from tests.pictures import encoded, noise
from workers.families.plan import plain

pytestmark = pytest.mark.usefixtures("pillow")


def by_library(data: bytes, resized: tuple[int, int]) -> Pixels:
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(picture.resize(resized[::-1], Image.Resampling.BICUBIC))


OPAQUE = [
    name for name in FILES if not any(word in name for word in ("rgba", "la", "key", "table"))
]

# The library clips 16 bits, so a colour key among them has a test of its own.
TRANSPARENT = [name for name in FILES if name not in OPAQUE and "i16" not in name]


@pytest.mark.parametrize("resized", [(28, 56), (112, 84), (400, 31)])
@pytest.mark.parametrize("name", [name for name in OPAQUE if "i16" not in name])
def test_opaque_pictures_are_the_librarys_own_bits(name: str, resized: tuple[int, int]) -> None:
    assert np.array_equal(decode(FILES[name], resized), by_library(FILES[name], resized))


@pytest.mark.parametrize("name", ["png-rgb", "bmp-rgb", "tiff-rgb", "tiff-lzw", "webp-lossless"])
def test_lossless_files_give_back_what_was_drawn(name: str) -> None:
    seeds = {"png-rgb": 1, "bmp-rgb": 30, "tiff-rgb": 35, "tiff-lzw": 36, "webp-lossless": 21}
    height, width, _ = decode(FILES[name]).shape
    drawn = noise(seeds[name], (width, height))
    assert np.array_equal(decode(FILES[name]), np.asarray(drawn))


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bits_are_scaled_and_not_clipped(form: str) -> None:
    picture = gray16((256, 16))
    gray = decode(encoded(picture, form))
    exact = np.asarray(picture).astype(np.float64) * 255 / 65535
    assert np.abs(gray - exact[:, :, None]).max() <= 0.5
    assert (gray[0, 0, 0], gray[-1, -1, 0]) == (0, 255)
    assert len(np.unique(gray)) == 256


def blend(picture: Image.Image, background: tuple[int, int, int]) -> Pixels:
    """As a checkpoint's own processor does it: in float32, without rounding."""
    values = np.asarray(picture.convert("RGBA"))
    alpha = values[:, :, 3:].astype(np.float32) / 255
    mixed = alpha * values[:, :, :3] + (1 - alpha) * np.array(background, dtype=np.uint8)
    pixels: Pixels = mixed.astype(np.uint8)
    return pixels


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (12, 200, 90)])
@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparent_pictures_lie_on_the_background(
    name: str, background: tuple[int, int, int]
) -> None:
    expected = blend(Image.open(io.BytesIO(FILES[name])), background)
    assert np.array_equal(decode(FILES[name], background=plain(background)), expected)


@pytest.mark.parametrize("resized", [(38, 53), (16, 22), (90, 140)])
def test_colours_under_full_transparency_never_show(resized: tuple[int, int]) -> None:
    hidden = noise(60, (53, 38)).convert("RGBA")
    hidden.putalpha(0)
    pixels = decode(encoded(hidden), resized, plain((9, 8, 7)))
    assert np.array_equal(np.unique(pixels.reshape(-1, 3), axis=0), [[9, 8, 7]])


def test_colour_keys_and_tables_agree_with_an_alpha_channel() -> None:
    gray = noise(61, (40, 30)).convert("L").quantize(8).convert("L")
    key = int(np.asarray(gray)[4, 5])
    alpha = Image.fromarray(np.where(np.asarray(gray) == key, 0, 255).astype(np.uint8))
    rgba = gray.convert("RGBA")
    rgba.putalpha(alpha)
    expected = decode(encoded(rgba), (20, 28))
    assert np.array_equal(decode(encoded(gray, transparency=key), (20, 28)), expected)
    rgb = gray.convert("RGB")
    assert np.array_equal(decode(encoded(rgb, transparency=(key,) * 3), (20, 28)), expected)
    palette = rgb.quantize(8)
    index = int(np.asarray(palette)[4, 5])
    assert np.array_equal(decode(encoded(palette, transparency=index), (20, 28)), expected)


def test_a_colour_key_of_16_bits_hides_just_that_value() -> None:
    values = np.array([[300, 301], [0, 65535]], dtype=np.uint16)
    pixels = decode(
        encoded(Image.fromarray(values), transparency=300), background=plain((200, 0, 0))
    )
    assert pixels[:, :, 0].tolist() == [[200, 1], [0, 255]]


# What turns an upright picture into the one that a file with this orientation stores.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize(
    ("form", "options"), [("PNG", {}), ("WEBP", {"lossless": True}), ("TIFF", {})]
)
@pytest.mark.parametrize(("value", "turn"), STORED.items())
def test_all_orientations_give_the_one_upright_picture(
    form: str, options: dict[str, bool], value: int, turn: Image.Transpose | None
) -> None:
    upright = noise(62, (47, 32))
    stored = upright if turn is None else upright.transpose(turn)
    data = encoded(stored, form, exif=orientation(value), **options)
    assert np.array_equal(decode(data), np.asarray(upright))
    assert np.array_equal(decode(data, (60, 30)), decode(encoded(upright), (60, 30)))


def test_texts_and_profiles_of_a_png_change_no_pixel() -> None:
    texts = png_chunk(b"zTXt", b"a\0\0broken") + png_chunk(b"iCCP", b"broken")
    assert np.array_equal(decode(png_with(texts)), decode(FILES["png-rgb"]))


@pytest.mark.parametrize("value", range(1, 9))
def test_a_jpeg_is_turned_as_the_library_turns_it(value: int) -> None:
    data = encoded(noise(63, (80, 56)), "JPEG", exif=orientation(value))
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(decode(data), np.asarray(upright))


def test_an_orientation_told_by_xmp_alone_does_not_turn() -> None:
    picture = noise(64, (40, 30))
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    for form in ("TIFF", "JPEG", "WEBP"):
        if form == "TIFF":
            info = TiffImagePlugin.ImageFileDirectory_v2()
            info[700] = xmp
            data = encoded(picture, form, tiffinfo=info)
        else:
            data = encoded(picture, form, xmp=xmp)
        assert b"tiff:Orientation" in data
        assert decode(data).shape == (30, 40, 3)
        # Lossy formats come near what was drawn; a picture that was turned would not.
        assert np.abs(decode(data).astype(int) - np.asarray(picture)).mean() < 8


@pytest.mark.parametrize("size", [(1, 1), (300, 1), (1, 300), (3, 1), (2, 2), (332, 27)])
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L"])
def test_tiny_and_thin_pictures_are_decoded(size: tuple[int, int], mode: str) -> None:
    data = encoded(noise(65, size).convert(mode))
    assert np.array_equal(decode(data, (28, 56)), by_library(data, (28, 56)))


@pytest.mark.parametrize("name", [name for name in FILES if "two" in name])
def test_the_first_frame_is_taken(name: str) -> None:
    assert np.array_equal(
        decode(FILES[name]), by_library(FILES[name], decode(FILES[name]).shape[:2])
    )


@pytest.mark.parametrize("name", [name for name in TRANSPARENT if "key" not in name])
def test_without_a_ground_hidden_colours_show(name: str) -> None:
    """And they are dropped first: resizing does not weigh them by their alpha."""
    picture = Image.open(io.BytesIO(FILES[name])).convert("RGBA").convert("RGB")
    resized = picture.resize((31, 60), Image.Resampling.BICUBIC)
    assert np.array_equal(decode(FILES[name], background=None), np.asarray(picture))
    assert np.array_equal(decode(FILES[name], (60, 31), None), np.asarray(resized))


@pytest.mark.parametrize("name", [name for name in FILES if "key" in name])
def test_without_a_ground_a_colour_key_is_a_colour_like_any(name: str) -> None:
    keyless = Image.open(io.BytesIO(FILES[name]))
    keyless.info.pop("transparency")
    options = {"lossless": True} if keyless.format == "WEBP" else {}
    data = encoded(keyless, keyless.format or "PNG", **options)
    assert not read_header(source(data), LIMITS).has_alpha
    assert np.array_equal(decode(FILES[name], (40, 50), None), decode(data, (40, 50)))


# ---- colours of other kinds


def without_adobe_marker(data: bytes) -> bytes:
    start = data.index(b"\xff\xee")
    return data[:start] + data[start + 2 + int.from_bytes(data[start + 2 : start + 4], "big") :]


def test_inks_of_a_jpeg_are_read_as_adobe_writes_them_with_and_without_its_marker() -> None:
    data = FILES["jpeg-cmyk"]
    bare = without_adobe_marker(data)
    assert b"Adobe" in data
    assert b"Adobe" not in bare
    assert np.array_equal(decode(bare), decode(data))
    assert np.array_equal(decode(data), by_library(data, (68, 96)))
    drawn = np.asarray(noise(17, (96, 68))).astype(int)  # were they inverted, it would be far off
    assert np.abs(decode(data) - drawn).mean() < 8 < np.abs(255 - decode(data) - drawn).mean()


def test_a_jpeg_that_stores_rgb_is_read_as_rgb() -> None:
    picture = noise(82, (64, 48))
    data = encoded(picture, "JPEG", keep_rgb=True, quality=95)
    assert np.abs(decode(data).astype(int) - np.asarray(picture)).mean() < 4


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_a_colour_profile_changes_no_pixel(form: str) -> None:
    picture = noise(83, (45, 36))
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    data = encoded(picture, form, icc_profile=profile)
    assert Image.open(io.BytesIO(data)).info["icc_profile"] == profile
    assert np.array_equal(decode(data), decode(encoded(picture, form)))


def png_of_16_bits(values: npt.NDArray[np.int64], colour_type: int) -> bytes:
    height, width, _ = values.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    head = struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return FILES["png-rgb"][:8] + b"".join(png_chunk(*chunk) for chunk in chunks)


@pytest.mark.parametrize(("colour_type", "num_channels"), [(2, 3), (6, 4), (4, 2)])
def test_colours_of_16_bits_are_cut_to_their_high_byte(colour_type: int, num_channels: int) -> None:
    values = np.random.default_rng(84).integers(0, 65536, (13, 11, num_channels))
    made = decode(png_of_16_bits(values, colour_type), background=None)
    colours = values[:, :, :3] if num_channels > 2 else values[:, :, :1]
    assert np.array_equal(made, np.broadcast_to(colours >> 8, made.shape))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA"])
def test_pictures_of_few_colours_are_resized_in_full_ones(mode: str) -> None:
    """The library by itself would take the nearest pixel of a palette or of two colours."""
    full = see_through(85, (40, 30)) if "A" in mode else noise(85, (40, 30))
    picture = full.convert("RGB").quantize(16) if mode == "P" else full.convert(mode)
    data = encoded(picture, "TIFF" if mode == "PA" else "PNG")
    assert Image.open(io.BytesIO(data)).mode == mode
    wide = picture.convert("RGBA").resize((60, 20), Image.Resampling.BICUBIC)
    assert np.array_equal(decode(data, (20, 60)), blend(wide, (255, 255, 255)))
    assert len(np.unique(decode(data, (20, 60)).reshape(-1, 3), axis=0)) > 16


@pytest.mark.slow
@pytest.mark.parametrize("size", [(640, 480), (97, 333), (1500, 64)])
def test_rgb_is_bit_equal_to_the_models_own_processor(size: tuple[int, int]) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import (
        Qwen2VLImageProcessorPil,
    )

    picture = noise(66, size)
    made = Qwen2VLImageProcessorPil(
        do_rescale=False, do_normalize=False, patch_size=1, merge_size=28, temporal_patch_size=1,
        min_pixels=3136, max_pixels=100_000,
    )(picture, return_tensors="np")  # fmt: skip
    _, height, width = made["image_grid_thw"][0]
    # Patches of one pixel lie in blocks of merge_size by merge_size.
    blocks = made["pixel_values"].reshape(height // 28, width // 28, 28, 28, 3)
    expected = blocks.transpose(0, 2, 1, 3, 4).reshape(height, width, 3)
    assert np.array_equal(decode(encoded(picture), (int(height), int(width))), expected)
