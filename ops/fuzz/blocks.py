"""Image files in, files out whose blocks are wrong though their framing holds.

Damage at random seldom gets past a checksum or a length. Here a file is taken apart into its
blocks, these are changed, doubled, dropped, moved or joined by strange ones, and then lengths and
checksums are made to fit again, mostly.
"""

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from ops.fuzz.mutate import EXTREMES, mutate

_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_MANY = 400  # times that one block comes, if it is small
_MAX_REPEATED_BYTES = 1 << 20
_BARE_MARKERS = (0xD8, 0xD9)
_START_OF_SCAN = 0xDA


@dataclass(frozen=True, slots=True)
class Block:
    """One block: what it is called, and its content without length and checksum."""

    kind: bytes
    content: bytes


@dataclass(frozen=True, slots=True)
class Form:
    """How files of one format are taken apart and put together."""

    split: Callable[[bytes], list[Block]]
    join: Callable[[Sequence[Block]], bytes]
    strange: tuple[bytes, ...]  # kinds of blocks that readers look into


def shake(data: bytes, chance: Random) -> bytes:
    """Change the blocks of a file; a file without blocks has its numbers changed."""
    form = form_of(data)
    if form is None:
        return set_fields(data, chance)
    blocks = form.split(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        if blocks:
            _change(blocks, form, chance)
    return form.join(blocks)


def form_of(data: bytes) -> Form | None:
    """How to take a file apart."""
    if data.startswith(_PNG_SIGNATURE):
        return Form(_split_png, _join_png, _PNG_KINDS)
    if data.startswith(b"\xff\xd8\xff"):
        return Form(_split_jpeg, _join_jpeg, _JPEG_KINDS)
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return Form(_split_riff, _join_riff, _RIFF_KINDS)
    return None


def _change(blocks: list[Block], form: Form, chance: Random) -> None:
    place = chance.randrange(len(blocks))
    block = blocks[place]
    match chance.randrange(8):
        case 0 | 1 | 2:
            blocks[place] = Block(block.kind, mutate(block.content, chance))
        case 3:
            blocks[place] = Block(block.kind, set_fields(block.content, chance))
        case 4:
            del blocks[place]
        case 5:
            most = 2 + _MAX_REPEATED_BYTES // (1 + len(block.content))
            blocks[place:place] = [block] * min(most, chance.choice((1, 2, _MANY)))
        case 6:
            blocks.insert(chance.randrange(len(blocks)), blocks.pop(place))
        case _:
            blocks.insert(place, _strange(form, chance))


def _strange(form: Form, chance: Random) -> Block:
    """A block that no writer would put there."""
    content = chance.choice((b"", chance.randbytes(13), chance.choice(_CONTENTS)))
    return Block(chance.choice(form.strange), content)


def set_fields(data: bytes, chance: Random) -> bytes:
    """Numbers in the first bytes, where headers are, become extremes or just other ones."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 3))):
        width = chance.choice((1, 2, 2, 4, 4))
        start = chance.randrange(max(1, min(len(changed), 200) // width)) * width
        number = chance.choice((*EXTREMES, chance.randrange(64), chance.randrange(1 << 16)))
        order = chance.choice("<>")
        field = struct.pack(order + "I", number)
        changed[start : start + width] = field[:width] if order == "<" else field[-width:]
    return bytes(changed[: len(data)])


def _split_png(data: bytes) -> list[Block]:
    blocks, place = [], len(_PNG_SIGNATURE)
    while place + 8 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, place)
        blocks.append(Block(kind, data[place + 8 : place + 8 + length]))
        place += length + 12
    return blocks


def _join_png(blocks: Sequence[Block]) -> bytes:
    return _PNG_SIGNATURE + b"".join(map(png_chunk, blocks))


def png_chunk(block: Block) -> bytes:
    """A block with the length and the checksum that it should have."""
    checksum = zlib.crc32(block.kind + block.content)
    length = struct.pack(">I", len(block.content))
    return length + block.kind + block.content + struct.pack(">I", checksum)


def _split_jpeg(data: bytes) -> list[Block]:
    """Segments; what is coded after a scan's header counts as part of it."""
    blocks, place = [], 0
    while place + 2 <= len(data):
        marker = data[place + 1]
        if marker in _BARE_MARKERS:
            blocks.append(Block(data[place : place + 2], b""))
            place += 2
            continue
        (length,) = struct.unpack(">H", data[place + 2 : place + 4].ljust(2, b"\0"))
        end = (
            _scan_end(data, place + 2 + length) if marker == _START_OF_SCAN else place + 2 + length
        )
        blocks.append(Block(data[place : place + 2], data[place + 4 : end]))
        place = max(end, place + 2)
    return blocks


def _scan_end(data: bytes, place: int) -> int:
    """Where the next marker stands that is no restart and no stuffed byte."""
    while (place := data.find(b"\xff", place)) >= 0:
        if place + 1 < len(data) and not (data[place + 1] == 0 or 0xD0 <= data[place + 1] <= 0xD7):
            return place
        place += 1
    return len(data)


def _join_jpeg(blocks: Sequence[Block]) -> bytes:
    return b"".join(map(_segment, blocks))


def _segment(block: Block) -> bytes:
    if block.kind[-1] in _BARE_MARKERS:
        return block.kind + block.content
    length = len(block.content) + 2
    if block.kind[-1] == _START_OF_SCAN and block.content:
        length = 6 + 2 * block.content[0]  # of its header; what it codes comes behind
    return block.kind + struct.pack(">H", length % 0x10000) + block.content


def _split_riff(data: bytes) -> list[Block]:
    blocks, place = [], 12
    while place + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, place)
        blocks.append(Block(kind, data[place + 8 : place + 8 + length]))
        place += 8 + length + length % 2
    return blocks


def _join_riff(blocks: Sequence[Block]) -> bytes:
    chunks = b"".join(
        each.kind
        + struct.pack("<I", len(each.content))
        + each.content
        + b"\0" * (len(each.content) % 2)
        for each in blocks
    )
    return b"RIFF" + struct.pack("<I", len(chunks) + 4) + b"WEBP" + chunks


def _exif(orientation: int, kind: int = 3, count: int = 1) -> bytes:
    """A block of EXIF with this one entry."""
    entry = struct.pack(">HHIHH", 0x0112, kind, count, orientation, 0)
    return b"MM\0*\0\0\0\x08\0\x01" + entry + bytes(4)


_PNG_KINDS = (
    b"IHDR", b"PLTE", b"IDAT", b"IEND", b"tRNS", b"eXIf", b"iCCP", b"zTXt", b"tEXt", b"iTXt",
    b"acTL", b"fcTL", b"fdAT", b"gAMA", b"cHRM", b"sRGB", b"sBIT", b"pHYs", b"bKGD", b"CgBI",
    b"none",
)  # fmt: skip
_JPEG_KINDS = tuple(
    bytes((0xFF, marker))
    for marker in (*range(0xC0, 0xD0), 0xD8, 0xD9, 0xDA, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xED, 0xEE)
)
_RIFF_KINDS = (b"VP8X", b"VP8 ", b"VP8L", b"ALPH", b"ANIM", b"ANMF", b"EXIF", b"ICCP", b"XMP ")
_CONTENTS = (
    *(_exif(number) for number in (0, 1, 6, 8, 9, 65535)),
    _exif(6, kind=4),
    _exif(6, count=2),
    b"Exif\0\0" + _exif(5),
    b"Exif\0\0" + _exif(6)[:17],
    b"Adobe\0d\0\0\0\0\x02",
    b"MPF\0II*\0\x08\0\0\0\x03\0",
    b"JFIF\0\x01\x02\0\0\x01\0\x01\0\0",
    b"name\0\0" + zlib.compress(bytes(1 << 20)),
    b"http://ns.adobe.com/xap/1.0/\0<x tiff:Orientation='3'/>",
    struct.pack(">IIBBBBB", 9, 7, 8, 6, 0, 0, 1),
    struct.pack(">IIBBBBB", 1 << 15, 1 << 15, 16, 6, 0, 0, 0),
)
