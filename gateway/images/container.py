"""Bounded walks over the block structure of image files, before an image library reads them.

The library walks blocks one by one in Python and decodes every scan of a JPEG at full size, so a
few megabytes of empty blocks would hold a thread for minutes, and a JPEG of a million empty scans
for hours. Each walk here stops at a count that no honest file comes near. Damage is not judged:
a walk ends where the structure does, and the library says what is wrong.
"""

import re
import struct
from collections.abc import Iterator
from itertools import islice

MAX_JPEG_SEGMENTS = 4096
MAX_JPEG_SCANS = 64
MAX_JPEG_EXIF_SEGMENTS = 8
MAX_PNG_CHUNKS = 16_384
MAX_GIF_BLOCKS = 131_072
MAX_TIFF_VALUES = 16_384  # of one tag that is no text: strips, tiles, resolutions

_START_OF_SCAN = 0xDA
_END_OF_IMAGE = 0xD9
_APP1 = 0xE1
_APP14 = 0xEE
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}  # those three are tables
_PLAIN_FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_END_OF_FILE = b"\xff\xd9"
_PNG_SIGNATURE_BYTES = 8
# Of the chunks that a reader may skip: transparency and animation.
_PNG_PIXEL_EXTRAS = (b"tRNS", b"acTL", b"fcTL", b"fdAT")
_EXIF = b"eXIf"
_TIFF_TEXT_TYPES = (1, 2, 6, 7)
_ORIENTATION = 0x0112
_INTEGERS = {3: "H", 4: "I"}  # types of TIFF, and how struct has them
# The next marker that has a length: no stuffed or fill byte, no restart or other bare marker.
_NEXT_MARKER = re.compile(rb"\xff[^\x00\x01\xd0-\xd7\xff]")


class ContainerFault(Exception):
    """A file has more blocks than any honest one; the message names the limit."""


def check_jpeg(data: bytes) -> None:
    """Refuse a JPEG with too many segments, scans or EXIF segments."""
    num_scans = num_exif = 0
    for number, (marker, start) in enumerate(_jpeg_segments(data)):
        num_scans += marker == _START_OF_SCAN
        num_exif += marker == _APP1 and data[start : start + 4] == b"Exif"
        _check(number, MAX_JPEG_SEGMENTS, "segments")
        _check(num_scans, MAX_JPEG_SCANS, "scans")
        _check(num_exif, MAX_JPEG_EXIF_SEGMENTS, "EXIF segments")


def _jpeg_segments(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield (marker, start of its content) up to the end of the first image."""
    found = _NEXT_MARKER.search(data, 2)
    while found and found.end() + 2 <= len(data):
        marker, start = data[found.end() - 1], found.end()
        if marker == _END_OF_IMAGE:
            return
        yield marker, start + 2
        length = struct.unpack_from(">H", data, start)[0]
        found = _NEXT_MARKER.search(data, start + length)


def is_plain_jpeg(data: bytes) -> bool:
    """Whether every decoder reads a JPEG alike: Huffman codes, 8 bits, gray or YCbCr, and whole.

    The rest is inks, RGB without a change of colours, arithmetic codes, lossless or cut off; each
    of these some decoders refuse, or take for something else.
    """
    frame, is_untransformed = b"", False
    for marker, start in _jpeg_segments(data):
        content = data[start : start + 15]
        if marker in _FRAMES:
            frame = content if marker in _PLAIN_FRAMES else b""
        elif marker == _APP14 and content[:5] == b"Adobe":
            is_untransformed = content[11:12] == b"\0"
        elif marker == _START_OF_SCAN:
            is_whole = data.find(_END_OF_FILE, start) >= 0
            return is_whole and _has_plain_colours(frame, is_untransformed)
    return False


def _has_plain_colours(frame: bytes, is_untransformed: bool) -> bool:
    """Whether a frame header, from its precision on, tells 8 bits of gray or of YCbCr."""
    precision, num_components, names = frame[:1], frame[5:6], frame[6::3]
    is_rgb = is_untransformed or names == b"RGB"
    return precision == b"\x08" and (
        num_components == b"\1" or (num_components == b"\3" and not is_rgb)
    )


def find_png_exif(data: bytes) -> bytes:
    """The content of a PNG's eXIf chunk, wherever it stands; empty without one.

    There should be one. Of several the last counts, as the library has it.
    """
    contents = [
        data[start + 8 : end - 4] for kind, start, end in _png_chunks(data) if kind == _EXIF
    ]
    return contents[-1] if contents else b""


def strip_png(data: bytes) -> bytes:
    """A PNG without what does not concern its pixels: texts, colour profile, dates and the like.

    The library would unpack each of them, and refuse a picture for a text that is too long.
    """
    pieces = [(start, end) for kind, start, end in _png_chunks(data) if _is_about_pixels(kind)]
    return data[:_PNG_SIGNATURE_BYTES] + b"".join(data[start:end] for start, end in pieces)


def _is_about_pixels(kind: bytes) -> bool:
    return kind[:1].isupper() or kind in _PNG_PIXEL_EXTRAS


def _png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (kind, start, end) of each chunk, its length and checksum included."""
    position = _PNG_SIGNATURE_BYTES
    number = 0
    while position + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, position)
        yield kind, position, position + length + 12
        position += length + 12
        number += 1
        _check(number, MAX_PNG_CHUNKS, "chunks")


def is_animated_gif(data: bytes) -> bool:
    """Whether a GIF has a second frame; looks no further than that."""
    try:
        return len(list(islice(_gif_frames(data), 2))) == 2
    except IndexError:  # the data ends inside a block
        return False


def _gif_frames(data: bytes) -> Iterator[None]:
    position = 13 + _palette_bytes(data[10])
    number = 0
    while (kind := data[position]) != ord(";"):
        if kind == ord(","):
            yield
            position += 11 + _palette_bytes(data[position + 9])
        else:
            # What is neither a frame nor an extension is skipped, as the library does.
            position += 2 if kind == ord("!") else 0
        while data[position] and kind in b",!":
            position += 1 + data[position]
            number += 1
            _check(number, MAX_GIF_BLOCKS, "blocks")
        position += 1
        number += 1
        _check(number, MAX_GIF_BLOCKS, "blocks")


def _palette_bytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def check_tiff(data: bytes) -> None:
    """Refuse a TIFF whose first directory has a tag of too many values."""
    for _, kind, count, _ in _directory(data):
        if kind not in _TIFF_TEXT_TYPES:
            _check(count, MAX_TIFF_VALUES, "values in one tag")


def read_orientation(exif: bytes) -> int:
    """The orientation that an EXIF block tells, 1 to 8; 1 when it tells none.

    It should be one number of 16 bits. As the library does, take one of 32 bits too, and the first
    of two.
    """
    exif = exif.removeprefix(b"Exif\0\0")
    order = ">" if exif[:2] == b"MM" else "<"
    for tag, kind, count, value in _directory(exif):
        form = order + _INTEGERS.get(kind, "")  # of no size where it is no number
        if tag == _ORIENTATION and 0 < count * struct.calcsize(form) <= len(value):
            number = int(struct.unpack_from(form, value)[0])
            return number if 1 <= number <= 8 else 1
    return 1


def _directory(data: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Yield (tag, type, count, value or offset) of the first directory of a TIFF or EXIF block."""
    if data[:2] not in (b"II", b"MM") or len(data) < 8:
        return
    order = ">" if data[:2] == b"MM" else "<"
    start = struct.unpack_from(order + "I", data, 4)[0]
    if start + 2 > len(data):
        return
    count = struct.unpack_from(order + "H", data, start)[0]
    end = min(start + 2 + 12 * count, len(data) - 11)
    for position in range(start + 2, end, 12):
        yield struct.unpack_from(order + "HHI4s", data, position)


def _check(number: int, limit: int, what: str) -> None:
    if number > limit:
        raise ContainerFault(f"more than {limit} {what}")
