"""Image files for tests: every format and mode that is taken, and blocks to build bad ones."""

import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

from gateway.images.fetch import SourceImage
from tests.pictures import encoded, noise

PARAM = "messages[0].content[2].image_url"


def source(data: bytes) -> SourceImage:
    return SourceImage(3, PARAM, data)


def gray16(size: tuple[int, int]) -> Image.Image:
    """A ramp over all 16 bits."""
    width, height = size
    values = np.linspace(0, 65535, width * height).astype(np.uint16)
    return Image.fromarray(values.reshape(height, width))


def see_through(seed: int, size: tuple[int, int]) -> Image.Image:
    """A noisy picture with every kind of alpha: none, some, full."""
    picture = noise(seed, size).convert("RGBA")
    ramp = np.linspace(0, 255, size[0]).astype(np.uint8)
    picture.putalpha(Image.fromarray(np.tile(ramp, (size[1], 1))))
    return picture


def _make_files() -> dict[str, bytes]:
    """Each of its own size and content."""
    rgb = noise(1, (61, 45))
    forms: list[tuple[str, Image.Image, str, dict[str, Any]]] = [
        ("png-rgb", rgb, "PNG", {}),
        ("png-rgba", see_through(2, (53, 38)), "PNG", {}),
        ("png-l", noise(3, (47, 31)).convert("L"), "PNG", {}),
        ("png-la", see_through(4, (44, 29)).convert("LA"), "PNG", {}),
        ("png-p", noise(5, (43, 27)).quantize(16), "PNG", {}),
        ("png-p-key", noise(6, (42, 33)).quantize(16), "PNG", {"transparency": 3}),
        ("png-p-table", noise(7, (41, 36)).quantize(8), "PNG", {"transparency": b"\0\x40\xff\x80"}),
        ("png-1", noise(8, (39, 26)).convert("1"), "PNG", {}),
        ("png-1-key", noise(9, (38, 25)).convert("1"), "PNG", {"transparency": 255}),
        ("png-l-key", noise(10, (37, 24)).convert("L"), "PNG", {"transparency": 128}),
        ("png-rgb-key", noise(11, (36, 23)), "PNG", {"transparency": (10, 20, 30)}),
        ("png-i16", gray16((64, 33)), "PNG", {}),
        ("png-i16-key", gray16((60, 32)), "PNG", {"transparency": 300}),
        ("png-two", noise(12, (35, 22)), "PNG",
         {"save_all": True, "append_images": [noise(13, (35, 22))]}),
        ("jpeg-rgb", noise(14, (99, 71)), "JPEG", {}),
        ("jpeg-progressive", noise(15, (98, 70)), "JPEG", {"progressive": True}),
        ("jpeg-l", noise(16, (97, 69)).convert("L"), "JPEG", {}),
        ("jpeg-cmyk", noise(17, (96, 68)).convert("CMYK"), "JPEG", {}),
        ("jpeg-two", noise(18, (95, 67)), "MPO",
         {"save_all": True, "append_images": [noise(19, (95, 67))]}),
        ("webp-rgb", noise(20, (94, 66)), "WEBP", {}),
        ("webp-lossless", noise(21, (93, 65)), "WEBP", {"lossless": True}),
        ("webp-rgba", see_through(22, (92, 64)), "WEBP", {}),
        ("webp-two", noise(23, (91, 63)), "WEBP",
         {"save_all": True, "append_images": [noise(24, (91, 63))]}),
        ("gif-p", noise(25, (34, 21)).quantize(32), "GIF", {}),
        ("gif-l", noise(26, (33, 20)).convert("L"), "GIF", {}),
        ("gif-key", noise(27, (32, 19)).quantize(16), "GIF", {"transparency": 2}),
        ("gif-two", noise(28, (31, 18)).quantize(16), "GIF",
         {"save_all": True, "append_images": [noise(29, (31, 18)).quantize(16)]}),
        ("bmp-rgb", noise(30, (30, 17)), "BMP", {}),
        ("bmp-l", noise(31, (29, 16)).convert("L"), "BMP", {}),
        ("bmp-p", noise(32, (28, 15)).quantize(16), "BMP", {}),
        ("bmp-1", noise(33, (27, 14)).convert("1"), "BMP", {}),
        ("bmp-32", see_through(34, (26, 13)), "BMP", {}),
        ("tiff-rgb", noise(35, (55, 37)), "TIFF", {}),
        ("tiff-lzw", noise(36, (54, 36)), "TIFF", {"compression": "tiff_lzw"}),
        ("tiff-jpeg", noise(37, (64, 48)), "TIFF", {"compression": "jpeg"}),
        ("tiff-cmyk", noise(38, (52, 35)).convert("CMYK"), "TIFF", {}),
        ("tiff-rgba", see_through(39, (51, 34)), "TIFF", {}),
        ("tiff-1", noise(40, (50, 33)).convert("1"), "TIFF", {"compression": "group4"}),
        ("tiff-i16", gray16((49, 32)), "TIFF", {}),
        ("tiff-two", noise(41, (48, 31)), "TIFF",
         {"save_all": True, "append_images": [noise(42, (20, 10))]}),
    ]  # fmt: skip
    return {name: encoded(picture, form, **options) for name, picture, form, options in forms}


FILES = _make_files()


def orientation(value: int) -> bytes:
    """An EXIF block that tells an orientation."""
    exif = Image.Exif()
    exif[0x0112] = value
    return exif.tobytes()


def png_chunk(kind: bytes, data: bytes = b"") -> bytes:
    crc = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc)


def png_with(chunk: bytes, before: bytes = b"IDAT") -> bytes:
    """A good PNG with one more chunk in it."""
    data = FILES["png-rgb"]
    place = data.index(before) - 4
    return data[:place] + chunk + data[place:]


def png_of_size(width: int, height: int) -> bytes:
    """A PNG whose header tells this size; its pixels are of another."""
    chunk = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return FILES["png-rgb"][:8] + chunk + FILES["png-rgb"][33:]


def tiff(*entries: tuple[int, int, int, int], extra: bytes = b"") -> bytes:
    """A little-endian TIFF with one directory of (tag, type, count, value) and more bytes."""
    directory = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    head = struct.pack("<2sHIH", b"II", 42, 8, len(entries))
    return head + directory + bytes(4) + extra
