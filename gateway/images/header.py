"""A `SourceImage` in, its `ImageHeader` out: what a file says about itself before any pixel exists.

Every limit on formats, pixels and sides holds here. Hostile files may keep a thread busy for some
tens of milliseconds, so the caller runs this outside the event loop.
"""

import importlib
import io
import re
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from PIL import Image, ImageFile, TiffImagePlugin

from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge, Stage
from gateway.images.container import (
    ContainerFault,
    check_jpeg,
    check_tiff,
    find_png_exif,
    is_animated_gif,
    is_plain_jpeg,
    read_orientation,
    strip_png,
)
from gateway.images.fetch import SourceImage

# Each format that is taken, and how the library spells it in the name of its plug-in.
FORMATS = {
    "PNG": "Png",
    "JPEG": "Jpeg",
    "WEBP": "WebP",
    "GIF": "Gif",
    "BMP": "Bmp",
    "TIFF": "Tiff",
}
# Modes that turn into RGB by one plain rule; the rest (floats, 32-bit, LAB) have no known range.
MODES = frozenset(("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "I;16B"))
ALPHA_MODES = frozenset(("LA", "PA", "RGBA"))
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF87a", "GIF"),
    (b"GIF89a", "GIF"),
    (b"BM", "BMP"),
    (b"II*\0", "TIFF"),
    (b"MM\0*", "TIFF"),
)
_WALKS: dict[str, Callable[[bytes], object]] = {
    "JPEG": check_jpeg,
    "GIF": is_animated_gif,
    "TIFF": check_tiff,
}
_BMP_RUN_LENGTHS = (1, 2)  # the library unpacks them one byte at a time
_TILE_WIDTH, _TILE_LENGTH = 322, 323
# What the library lets out when a file is wrong, all of it seen or read in its source.
FAULTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    Warning,
    Image.DecompressionBombError,
    struct.error,
    zlib.error,
)


@dataclass(frozen=True, slots=True)
class ImageHeader:
    """One image as its file describes it. Sizes are in pixels."""

    format: str  # one of FORMATS
    width: int  # as stored
    height: int  # as stored
    orientation: int  # EXIF's, 1 to 8; 1 is upright
    has_alpha: bool
    is_plain_jpeg: bool  # one that all decoders read alike
    num_frames: int  # 2 stands for two or more; only the first is used
    mode: str  # the library's name of the pixel form

    @property
    def displayed_size(self) -> tuple[int, int]:
        """(height, width) as a viewer shows it: after the orientation."""
        if self.orientation >= 5:
            return self.width, self.height
        return self.height, self.width


def set_up_pillow(limits: ImageSettings) -> None:
    """Once, at start: load the format plug-ins and bind the library's own guard to our limit."""
    for plugin in FORMATS.values():
        importlib.import_module(f"PIL.{plugin}ImagePlugin")
    # The library refuses at twice its limit, some formats before they allocate.
    Image.MAX_IMAGE_PIXELS = max(1, limits.max_image_pixels // 2)
    # Remarks about odd files; whoever sent one learns of it by the answer.
    warnings.filterwarnings("ignore", module=r"PIL\.")


def read_header(image: SourceImage, limits: ImageSettings) -> ImageHeader:
    """Read what an image's file says about it, without decoding pixels.

    Raises:
        ImageRejected: stage header, code unsupported_format or invalid_image.
        ImageTooLarge: stage limit; more pixels or a longer side than allowed.
    """
    refuse = partial(ImageRejected, index=image.index, stage="header", param=image.param)
    name = _find_format(image.data)
    if name is None:
        raise refuse(f"the bytes are none of {', '.join(FORMATS)}", code="unsupported_format")
    with blame_image(image, "header"):
        if name in _WALKS:
            _WALKS[name](image.data)
        picture = _open_within(image, name, limits)
        _check_size(image, picture, limits)
        header = _describe(picture, image.data, name)
    if header.mode not in MODES or picture.info.get("compression") in _BMP_RUN_LENGTHS:
        raise refuse(f"this kind of {name} is not supported", code="unsupported_format")
    return header


def open_picture(data: bytes, name: str) -> ImageFile.ImageFile:
    """The picture with its header read and its pixels not."""
    if name == "PNG":
        data = strip_png(data)
    return Image.open(io.BytesIO(data), formats=(name,))


@contextmanager
def blame_image(image: SourceImage, stage: Stage) -> Iterator[None]:
    """Turn whatever the library raises at a bad file into an error that names the image."""
    blame = partial(ImageRejected, index=image.index, stage=stage, param=image.param)
    try:
        yield
    except ContainerFault as error:
        raise blame(str(error)) from error
    except FAULTS as error:
        raise blame("damaged or incomplete") from error


def _open_within(image: SourceImage, name: str, limits: ImageSettings) -> ImageFile.ImageFile:
    try:
        return open_picture(image.data, name)
    except Image.DecompressionBombError as error:
        # Its words begin with the number of pixels; the picture itself is gone.
        num_pixels = re.findall(r"\d+", str(error))[0]
        message = f"a picture of {num_pixels} pixels; the limit is {limits.max_image_pixels}"
        raise _too_large(image, message) from error


def _find_format(data: bytes) -> str | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "WEBP"
    return next((name for start, name in _SIGNATURES if data.startswith(start)), None)


def _check_size(image: SourceImage, picture: ImageFile.ImageFile, limits: ImageSettings) -> None:
    width, height = picture.size
    if width * height == 0:
        raise ImageRejected(
            f"{width} x {height} pixels hold no picture",
            index=image.index,
            stage="header",
            param=image.param,
        )
    if max(width, height) > limits.max_image_side:
        raise _too_large(
            image, f"{width} x {height} pixels; the limit of a side is {limits.max_image_side}"
        )
    # A tile of a TIFF is decoded whole, however small the picture.
    for what, num_pixels in (("picture", width * height), ("tile", _tile_pixels(picture))):
        if num_pixels > limits.max_image_pixels:
            raise _too_large(
                image, f"a {what} of {num_pixels} pixels; the limit is {limits.max_image_pixels}"
            )


def _tile_pixels(picture: ImageFile.ImageFile) -> int:
    if not isinstance(picture, TiffImagePlugin.TiffImageFile):
        return 0
    return int(picture.tag_v2.get(_TILE_WIDTH, 0)) * int(picture.tag_v2.get(_TILE_LENGTH, 0))


def _too_large(image: SourceImage, message: str) -> ImageTooLarge:
    return ImageTooLarge(message, index=image.index, stage="limit", param=image.param)


def _describe(picture: ImageFile.ImageFile, data: bytes, name: str) -> ImageHeader:
    # The library would look for the second frame of a GIF without a bound.
    is_animated = is_animated_gif(data) if name == "GIF" else getattr(picture, "is_animated", False)
    exif = find_png_exif(data) if name == "PNG" else picture.info.get("exif", b"")
    return ImageHeader(
        format=name,
        width=picture.width,
        height=picture.height,
        # None for a TIFF: the library turns it by itself and tells its size as displayed.
        orientation=read_orientation(exif),
        has_alpha=picture.mode in ALPHA_MODES or "transparency" in picture.info,
        is_plain_jpeg=name == "JPEG" and is_plain_jpeg(data),
        num_frames=2 if is_animated else 1,
        mode=picture.mode,
    )
