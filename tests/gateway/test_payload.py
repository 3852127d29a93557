"""Pixels as the plan wants them, from every kind of file, and turns that are fair."""

import asyncio
import io
import random
import threading
from collections.abc import Callable

import anyio
import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from config.settings import ImageSettings
from gateway.errors import ImageRejected
from gateway.header import read_header
from gateway.payload import DecodePool, decode_pixels
from tests.gateway.files import FILES, PARAM, gray16, orientation, png_chunk, see_through, source
from tests.pictures import encoded, noise
from workers.families.plan import ImagePlan

pytestmark = pytest.mark.usefixtures("pillow")

LIMITS = ImageSettings()
Pixels = npt.NDArray[np.uint8]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def plan_for(
    source_size: tuple[int, int], resized: tuple[int, int], background: tuple[int, int, int]
) -> ImagePlan:
    return ImagePlan(
        family="qwen_vl",
        backend="cpu",
        source_size=source_size,
        resized_size=resized,
        padded_size=resized,
        grid=(1, 2, 2),
        patch_size=16,
        temporal_patch_size=2,
        merge_size=2,
        num_tokens=1,
        resample="bicubic",
        rescale=1 / 255,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        background=background,
    )


def decode(
    data: bytes,
    resized: tuple[int, int] | None = None,
    background: tuple[int, int, int] = (255, 255, 255),
) -> Pixels:
    """Decode to [height, width, 3]; without `resized`, at the size the picture is displayed in."""
    header = read_header(source(data), LIMITS)
    height, width = resized or header.displayed_size
    plan = plan_for(header.displayed_size, (height, width), background)
    pixels = decode_pixels(source(data), header, plan)
    return np.frombuffer(pixels, np.uint8).reshape(height, width, 3)


def by_library(data: bytes, resized: tuple[int, int]) -> Pixels:
    picture = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(picture.resize(resized[::-1], Image.Resampling.BICUBIC))


OPAQUE = [
    name for name in FILES if not any(word in name for word in ("rgba", "la", "key", "table"))
]


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


def blend(picture: Image.Image, background: tuple[int, int, int]) -> npt.NDArray[np.float64]:
    values = np.asarray(picture.convert("RGBA")).astype(np.float64)
    alpha = values[:, :, 3:] / 255
    return values[:, :, :3] * alpha + np.array(background) * (1 - alpha)


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 0, 0), (12, 200, 90)])
@pytest.mark.parametrize("name", [name for name in FILES if name not in OPAQUE])
def test_transparent_pictures_lie_on_the_background(
    name: str, background: tuple[int, int, int]
) -> None:
    if name == "png-i16-key":
        return  # has a test of its own, because the library clips it
    expected = blend(Image.open(io.BytesIO(FILES[name])), background)
    assert np.abs(decode(FILES[name], background=background) - expected).max() <= 1.0


@pytest.mark.parametrize("resized", [(38, 53), (16, 22), (90, 140)])
def test_colours_under_full_transparency_never_show(resized: tuple[int, int]) -> None:
    hidden = noise(60, (53, 38)).convert("RGBA")
    hidden.putalpha(0)
    pixels = decode(encoded(hidden), resized, (9, 8, 7))
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
    pixels = decode(encoded(Image.fromarray(values), transparency=300), background=(200, 0, 0))
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


@pytest.mark.parametrize("value", range(1, 9))
def test_a_jpeg_is_turned_as_the_library_turns_it(value: int) -> None:
    data = encoded(noise(63, (80, 56)), "JPEG", exif=orientation(value))
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert np.array_equal(decode(data), np.asarray(upright))


def test_an_orientation_told_by_xmp_alone_does_not_turn() -> None:
    picture = noise(64, (40, 30))
    xmp = b'<x:xmpmeta><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    for form in ("TIFF", "JPEG", "WEBP"):
        if form == "TIFF":
            from PIL import TiffImagePlugin

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
    assert error.message == "image 3: damaged or incomplete (OSError)"


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


# ---- turns


class Gate:
    """Jobs that stop until they are let through, so that a test decides the order of events."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self._changed = threading.Condition()
        self._open: set[str] = set()

    def job(self, name: str) -> Callable[[], str]:
        def run() -> str:
            with self._changed:
                self.started.append(name)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: name in self._open, timeout=5)
            return name

        return run

    def open(self, name: str) -> None:
        with self._changed:
            self._open.add(name)
            self._changed.notify_all()

    async def wait_started(self, count: int) -> list[str]:
        def wait() -> list[str]:
            with self._changed:
                assert self._changed.wait_for(lambda: len(self.started) >= count, timeout=5)
                return list(self.started)

        return await anyio.to_thread.run_sync(wait)


async def _finish(gate: Gate, total: int, already: int = 0) -> list[str]:
    """Let the jobs through one after the other in the order in which they start."""
    for count in range(already, total):
        started = await gate.wait_started(count + 1)
        gate.open(started[count])
    return gate.started


@pytest.mark.anyio
async def test_one_image_waits_for_one_job_of_a_request_with_many() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(pool.run, "many", gate.job(f"many {number}"))
        await gate.wait_started(1)
        group.start_soon(pool.run, "one", gate.job("one"))
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 21)
    assert order.index("one") == 1


@pytest.mark.anyio
async def test_newcomers_do_not_starve_a_request_with_many() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(pool.run, "many", gate.job(f"many {number}"))
        for number in range(1, 41):
            group.start_soon(pool.run, f"new {number}", gate.job(f"new {number}"))
            if number % 2 == 0:  # two newcomers arrive for each job that ends
                started = await gate.wait_started(number // 2)
                await anyio.wait_all_tasks_blocked()
                gate.open(started[number // 2 - 1])
        order = await _finish(gate, 45, already=20)
    places = [order.index(f"many {number}") for number in range(5)]
    assert places == sorted(places)
    assert places[1] <= 6


@pytest.mark.anyio
async def test_requests_with_many_take_turns() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        for name in "abc":
            for number in range(4):
                group.start_soon(pool.run, name, gate.job(f"{name}{number}"))
            await gate.wait_started(1)
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 12)
    rounds = [order[:1], order[1:4], order[4:7], order[7:10], order[10:]]
    assert [sorted(name[0] for name in names) for names in rounds] == [
        ["a"], ["a", "b", "c"], ["a", "b", "c"], ["a", "b", "c"], ["b", "c"]
    ]  # fmt: skip


@pytest.mark.anyio
async def test_no_more_jobs_run_than_there_are_threads() -> None:
    pool, gate = DecodePool(3), Gate()
    async with anyio.create_task_group() as group:
        for number in range(9):
            group.start_soon(pool.run, f"request {number}", gate.job(f"{number}"))
        await gate.wait_started(3)
        await anyio.wait_all_tasks_blocked()
        assert len(gate.started) == 3
        await _finish(gate, 9)


@pytest.mark.anyio
async def test_a_waiter_that_is_cancelled_gives_its_turn_away() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:
        group.start_soon(pool.run, "a", gate.job("first"))
        await gate.wait_started(1)
        async with anyio.create_task_group() as leaving:
            leaving.start_soon(pool.run, "b", gate.job("gone"))
            await anyio.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        group.start_soon(pool.run, "c", gate.job("last"))
        await anyio.wait_all_tasks_blocked()
        order = await _finish(gate, 2)
    assert order == ["first", "last"]


@pytest.mark.anyio
async def test_a_turn_that_comes_with_the_cancellation_is_passed_on() -> None:
    pool, gate = DecodePool(1), Gate()

    async def first() -> None:
        await pool.run("a", gate.job("first"))
        gone.cancel()  # in the very step that gave it the turn

    task = asyncio.create_task(first())
    await gate.wait_started(1)
    gone = asyncio.create_task(pool.run("b", gate.job("gone")))
    await anyio.wait_all_tasks_blocked()
    gate.open("first")
    with pytest.raises(asyncio.CancelledError):
        await gone
    await task
    gate.open("last")
    with anyio.fail_after(5):
        assert await pool.run("c", gate.job("last")) == "last"
    assert gate.started == ["first", "last"]


@pytest.mark.anyio
async def test_a_job_that_is_cancelled_keeps_its_thread_until_it_ends() -> None:
    pool, gate = DecodePool(1), Gate()
    async with anyio.create_task_group() as group:

        async def leave() -> None:
            with anyio.CancelScope() as scope:
                group.start_soon(_cancel_when_started, gate, scope)
                await pool.run("a", gate.job("first"))

        group.start_soon(leave)
        await gate.wait_started(1)
        group.start_soon(pool.run, "b", gate.job("second"))
        await anyio.wait_all_tasks_blocked()
        assert gate.started == ["first"]
        await _finish(gate, 2)


async def _cancel_when_started(gate: Gate, scope: anyio.CancelScope) -> None:
    await gate.wait_started(1)
    scope.cancel()


@pytest.mark.anyio
async def test_a_job_that_fails_gives_its_turn_back_and_leaves_nothing_behind() -> None:
    pool, gate = DecodePool(1), Gate()
    gate.open("next")
    with pytest.raises(ZeroDivisionError):
        await pool.run("a", divmod, 1, 0)
    assert await pool.run("a", gate.job("next")) == "next"
    assert not pool._shares
    assert not pool._waiting


@pytest.mark.anyio
async def test_zero_threads_mean_one_per_core() -> None:
    assert await DecodePool(0).run("a", divmod, 7, 2) == (3, 1)


def test_see_through_pictures_are_not_all_opaque() -> None:
    assert len(np.unique(np.asarray(see_through(2, (53, 38)))[:, :, 3])) > 20
    assert png_chunk(b"IEND") == b"\0\0\0\0IEND\xaeB`\x82"
