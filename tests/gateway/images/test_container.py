"""Files that are all blocks and no picture: refused at a count, and honest files never are."""

import struct
import time

import pytest
from PIL import Image

from gateway.images.container import (
    MAX_GIF_BLOCKS,
    MAX_JPEG_SCANS,
    MAX_JPEG_SEGMENTS,
    MAX_PNG_CHUNKS,
    MAX_TIFF_VALUES,
    ContainerFault,
    check_jpeg,
    check_tiff,
    find_png_exif,
    is_animated_gif,
    is_plain_jpeg,
    read_orientation,
    strip_png,
)
from tests.gateway.files import FILES, orientation, png_chunk, png_with, tiff
from tests.pictures import encoded, noise

JPEG = FILES["jpeg-progressive"]
GIF = FILES["gif-p"]


def last_scan(data: bytes) -> bytes:
    """The tables and data of the last scan of a JPEG, without the end marker."""
    start = max(data.rfind(b"\xff\xda"), 0)
    tables = data.rfind(b"\xff\xc4", 0, start)
    return data[tables:-2]


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jpeg")])
def test_honest_jpegs_pass(name: str) -> None:
    check_jpeg(FILES[name])


@pytest.mark.parametrize(
    "segment", [b"\xff\xe5\x00\x02", b"\xff\xfe\x00\x04ab", b"\xff\xff\xff\xe0\x00\x03x"]
)
def test_a_flood_of_jpeg_segments_is_refused(segment: bytes) -> None:
    flood = segment * (MAX_JPEG_SEGMENTS + 1)
    with pytest.raises(ContainerFault, match=f"more than {MAX_JPEG_SEGMENTS} segments"):
        check_jpeg(JPEG[:2] + flood + JPEG[2:])


@pytest.mark.parametrize("between", [b"", b"\xff\x01", b"\xff\xff", b"\xff\xd0", b"\xff\x00junk"])
def test_a_jpeg_of_endless_scans_is_refused(between: bytes) -> None:
    scans = (between + last_scan(JPEG)) * (MAX_JPEG_SCANS + 1)
    with pytest.raises(ContainerFault, match=f"more than {MAX_JPEG_SCANS} scans"):
        check_jpeg(JPEG[:-2] + scans + JPEG[-2:])


def test_a_flood_of_exif_segments_is_refused() -> None:
    segment = b"\xff\xe1\x00\x08Exif\0\0"
    check_jpeg(JPEG[:2] + segment * 8 + JPEG[2:])
    with pytest.raises(ContainerFault):
        check_jpeg(JPEG[:2] + segment * 9 + JPEG[2:])


def test_scan_markers_inside_a_segment_or_after_the_end_do_not_count() -> None:
    markers = b"\xff\xda\x00\x08" * 5000
    segment = b"\xff\xef" + struct.pack(">H", len(markers) + 2) + markers
    check_jpeg(JPEG[:2] + segment + JPEG[2:] + b"\0\2" + markers)


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("jpeg")])
def test_a_jpeg_is_plain_unless_it_is_of_inks(name: str) -> None:
    assert is_plain_jpeg(FILES[name]) == (name != "jpeg-cmyk")


def adobe(transform: int) -> bytes:
    """The marker segment by which Adobe tells whether colours were changed to YCbCr."""
    return b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])


@pytest.mark.parametrize(("transform", "is_plain"), [(0, False), (1, True)])
def test_colours_left_as_they_are_are_not_plain(transform: int, is_plain: bool) -> None:
    for data in (FILES["jpeg-rgb"], FILES["jpeg-progressive"]):
        assert is_plain_jpeg(data[:2] + adobe(transform) + data[2:]) == is_plain
    gray = FILES["jpeg-l"]  # has no colours that could be changed
    assert is_plain_jpeg(gray[:2] + adobe(transform) + gray[2:])
    assert not is_plain_jpeg(encoded(noise(91, (40, 30)), "JPEG", keep_rgb=True))


def test_components_that_are_named_rgb_are_not_plain() -> None:
    data = bytearray(FILES["jpeg-rgb"])
    frame = data.index(b"\xff\xc0")
    data[frame + 10 : frame + 19 : 3] = b"RGB"
    assert not is_plain_jpeg(bytes(data))


@pytest.mark.parametrize("marker", [0xC3, 0xC5, 0xC9, 0xCA, 0xCF])
def test_arithmetic_and_lossless_jpegs_are_not_plain(marker: int) -> None:
    assert not is_plain_jpeg(FILES["jpeg-rgb"].replace(b"\xff\xc0", bytes([0xFF, marker]), 1))


def test_a_jpeg_of_12_bits_is_not_plain() -> None:
    data = bytearray(FILES["jpeg-rgb"])
    data[data.index(b"\xff\xc0") + 4] = 12
    assert not is_plain_jpeg(bytes(data))


@pytest.mark.parametrize("name", ["jpeg-rgb", "jpeg-progressive", "jpeg-l"])
def test_a_jpeg_that_is_cut_off_is_not_plain(name: str) -> None:
    data = FILES[name]
    assert is_plain_jpeg(data + b"more")
    for end in range(0, len(data), 7):
        assert not is_plain_jpeg(data[:end])


def test_a_flood_of_png_chunks_is_refused() -> None:
    find_png_exif(png_with(png_chunk(b"teSt") * (MAX_PNG_CHUNKS - 10)))
    with pytest.raises(ContainerFault, match=f"more than {MAX_PNG_CHUNKS} chunks"):
        find_png_exif(png_with(png_chunk(b"teSt") * MAX_PNG_CHUNKS))


@pytest.mark.parametrize("place", [b"IDAT", b"IEND"])
def test_the_exif_of_a_png_is_found_wherever_it_stands(place: bytes) -> None:
    assert find_png_exif(png_with(png_chunk(b"eXIf", b"MM\0*"), place)) == b"MM\0*"


def test_a_stripped_png_keeps_what_its_pixels_need() -> None:
    for name in (name for name in FILES if name.startswith("png")):
        texts = png_chunk(b"tEXt", b"a\0b"), png_chunk(b"pHYs", bytes(9)), png_chunk(b"eXIf", b"MM")
        plain = strip_png(FILES[name])
        at = plain.index(b"IDAT") - 4
        assert strip_png(plain[:at] + b"".join(texts) + plain[at:]) == plain
        assert (b"tRNS" in plain) == (b"tRNS" in FILES[name])
        assert (b"fdAT" in plain) == (name == "png-two")


def test_a_flood_of_gif_blocks_is_refused() -> None:
    flood = b"!\xfe" + b"\x01x" * (MAX_GIF_BLOCKS + 1) + b"\0"
    start = 13 + (3 << ((GIF[10] & 7) + 1))
    with pytest.raises(ContainerFault, match=f"more than {MAX_GIF_BLOCKS} blocks"):
        is_animated_gif(GIF[:start] + flood + GIF[start:])
    with pytest.raises(ContainerFault):
        is_animated_gif(GIF[:start] + bytes(MAX_GIF_BLOCKS + 1) + GIF[start:])


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("gif")])
def test_the_second_frame_of_a_gif_is_seen(name: str) -> None:
    assert is_animated_gif(FILES[name]) == (name == "gif-two")


def test_a_gif_that_ends_anywhere_ends_the_walk() -> None:
    for end in range(13, len(FILES["gif-two"])):
        is_animated_gif(FILES["gif-two"][:end])


def test_a_tiff_tag_of_too_many_values_is_refused() -> None:
    check_tiff(tiff((273, 4, MAX_TIFF_VALUES, 8), (700, 1, 10**6, 8)))
    with pytest.raises(ContainerFault):
        check_tiff(tiff((273, 4, MAX_TIFF_VALUES + 1, 8)))


@pytest.mark.parametrize("value", range(1, 9))
def test_every_orientation_is_read(value: int) -> None:
    assert read_orientation(orientation(value)) == value


@pytest.mark.parametrize(
    ("kind", "count", "value", "read"),
    [
        (1, 1, b"\x06\0\0\0", 1),  # a byte
        (3, 2, b"\0\x06\0\x02", 6),  # numbers of 16 bits
        (4, 1, b"\0\0\0\x06", 6),  # of 32 bits
        (3, 0, b"\0\x06\0\0", 1),
        (2, 1, b"6\0\0\0", 1),  # letters
        (4, 1, b"\0\1\0\x06", 1),
    ],
)
@pytest.mark.filterwarnings("ignore:Metadata Warning")
def test_an_orientation_in_an_odd_form_is_read_as_the_library_reads_it(
    kind: int, count: int, value: bytes, read: int
) -> None:
    exif = b"MM\0*" + struct.pack(">IHHHI", 8, 1, 0x0112, kind, count) + value + bytes(4)
    theirs = Image.Exif()
    theirs.load(exif)
    assert read_orientation(exif) == read
    assert theirs.get(0x0112) in ((read,) if read != 1 else (None, b"\x06", "6", 0x10006))


def test_both_byte_orders_of_an_exif_block_are_read() -> None:
    entry = (0x0112, 3, 1)
    big = b"MM\0*" + struct.pack(">IHHHIHH", 8, 1, *entry, 6, 0)
    little = b"II*\0" + struct.pack("<IHHHIHH", 8, 1, *entry, 6, 0)
    assert read_orientation(big) == read_orientation(little) == 6


@pytest.mark.parametrize(
    "exif",
    [b"", b"Exif\0\0", b"II*\0", b"nothing like it", orientation(1)[:-9], orientation(0),
     orientation(9), b"II*\0\xff\xff\xff\xff", b"MM\0*\0\0\0\x08\xff\xff"],
)  # fmt: skip
def test_an_exif_block_without_a_sound_orientation_is_upright(exif: bytes) -> None:
    assert read_orientation(exif) == 1


def test_the_largest_files_that_pass_are_walked_quickly() -> None:
    flood = png_with(png_chunk(b"teSt") * (MAX_PNG_CHUNKS - 10))
    photo = encoded(noise(50, (2000, 1500)), "JPEG", quality=100)
    begun = time.perf_counter()
    find_png_exif(flood)
    check_jpeg(photo)
    assert time.perf_counter() - begun < 1.0
