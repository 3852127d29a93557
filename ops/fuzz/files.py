"""Honest image files, made when asked for: every format taken, in every mode it may have."""

import io
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageCms, PngImagePlugin

_TURNED = 6
_XMP = (
    b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf'
    b'-syntax-ns#"><rdf:Description tiff:Orientation="3" xmlns:tiff="http://ns.adobe.com/tiff/'
    b'1.0/"/></rdf:RDF></x:xmpmeta>'
)
_ANIMATED = {"save_all": True}
Form = tuple[str, Mapping[str, Any]]  # the library's name, and how to save

_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_JPEG_MODES = ("L", "RGB", "CMYK")
_WEBP_MODES = ("RGB", "RGBA", "L")
_GIF_MODES = ("1", "L", "P", "RGB")
_BMP_MODES = ("1", "L", "P", "RGB", "RGBA")
_TIFF_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "I;16")


def make_files() -> tuple[bytes, ...]:
    """Some hundred small files, always the same; each of its own size and content."""
    return tuple(
        _save(picture, form, options) for picture, (form, options) in _pictures(tuple(_forms()))
    )


def _pictures(forms: tuple[tuple[str, Form], ...]) -> Iterator[tuple[Image.Image, Form]]:
    for number, (mode, form) in enumerate(forms):
        yield _draw(number, mode), form


def _draw(number: int, mode: str) -> Image.Image:
    """Coarse blocks of noise, in a size that no other number has."""
    size = (19 + 3 * number % 41, 16 + number % 37)
    chance = np.random.default_rng(number)
    blocks = Image.fromarray(chance.integers(0, 256, (5, 6, 4), dtype=np.uint8))
    picture = blocks.resize(size, Image.Resampling.BILINEAR)
    if mode == "I;16":
        return Image.fromarray(chance.integers(0, 65536, size[::-1], dtype=np.uint16))
    if mode == "P":
        return picture.convert("RGB").quantize(16)
    return picture if mode == "RGBA" else picture.convert("RGB").convert(mode)


def _forms() -> Iterator[tuple[str, Form]]:
    """Pairs of a mode and a form."""
    yield from _png_forms()
    yield from _jpeg_forms()
    yield from _other_forms()
    yield from _tiff_forms()


def _png_forms() -> Iterator[tuple[str, Form]]:
    for mode in _PNG_MODES:
        yield mode, ("PNG", {})
    texts = PngImagePlugin.PngInfo()
    texts.add_text("Comment", "words " * 20)
    texts.add_text("Packed", "words " * 200, zip=True)
    texts.add_itxt("XML:com.adobe.xmp", _XMP.decode())
    yield "RGB", ("PNG", {"pnginfo": texts, "exif": _exif(), "icc_profile": _profile()})
    yield "P", ("PNG", {"transparency": 3, "bits": 4})
    yield "L", ("PNG", {"transparency": 99})
    yield "RGB", ("PNG", {"transparency": (1, 2, 3)})
    yield "I;16", ("PNG", {"transparency": 700})
    for mode in ("RGB", "P"):
        yield mode, ("PNG", _ANIMATED)


def _jpeg_forms() -> Iterator[tuple[str, Form]]:
    for mode in _JPEG_MODES:
        yield mode, ("JPEG", {})
        yield mode, ("JPEG", {"progressive": True, "quality": 30})
    extras = {"exif": _exif(), "icc_profile": _profile(), "comment": b"words", "xmp": _XMP}
    yield "RGB", ("JPEG", extras)
    yield "RGB", ("JPEG", {"subsampling": 2, "restart_marker_rows": 1, "optimize": True})
    yield "RGB", ("JPEG", {"keep_rgb": True})
    yield "RGB", ("MPO", _ANIMATED)


def _other_forms() -> Iterator[tuple[str, Form]]:
    for mode in _WEBP_MODES:
        yield mode, ("WEBP", {})
        yield mode, ("WEBP", {"lossless": True})
    yield "RGBA", ("WEBP", {"exif": _exif(), "icc_profile": _profile(), "xmp": _XMP})
    yield "RGBA", ("WEBP", _ANIMATED)
    for mode in _GIF_MODES:
        yield mode, ("GIF", {})
    yield "P", ("GIF", {"transparency": 2, "comment": b"words", "interlace": 0})
    yield "P", ("GIF", _ANIMATED)
    for mode in _BMP_MODES:
        yield mode, ("BMP", {})


def _tiff_forms() -> Iterator[tuple[str, Form]]:
    for mode in _TIFF_MODES:
        yield mode, ("TIFF", {})
    for compression in ("tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg", "zstd"):
        yield "RGB", ("TIFF", {"compression": compression})
    yield "RGBA", ("TIFF", {"compression": "tiff_lzw"})
    yield "1", ("TIFF", {"compression": "group4"})
    yield "1", ("TIFF", {"compression": "group3"})
    yield "RGB", ("TIFF", {"exif": _exif(), "icc_profile": _profile()})
    yield "L", ("TIFF", _ANIMATED)
    yield "RGB", ("TIFF", {"big_tiff": True})


def _save(picture: Image.Image, form: str, options: Mapping[str, Any]) -> bytes:
    file = io.BytesIO()
    more = [picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)] if options is _ANIMATED else []
    picture.save(file, form, **options, **({"append_images": more} if more else {}))
    return file.getvalue()


def _exif() -> bytes:
    exif = Image.Exif()
    exif[0x0112] = _TURNED
    exif[0x010E] = "words"
    return exif.tobytes()


def _profile() -> bytes:
    """A profile of colours, without the date of today in it."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile[:24] + bytes(12) + profile[36:]
