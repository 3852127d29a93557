"""A `SourceImage` in, its picture out: the first frame, upright, in RGB or RGBA of 8 bits.

The order of steps is fixed, because it decides the bits: decode, turn colours into RGB or RGBA,
turn upright.
"""

import numpy as np
from PIL import Image

from gateway.images.fetch import SourceImage
from gateway.images.header import ImageHeader, blame_image, open_picture

# What makes a picture upright, by EXIF orientation.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode(image: SourceImage, header: ImageHeader, with_alpha: bool) -> Image.Image:
    """Decode one image to RGBA, or to RGB where alpha is dropped and hidden colours show.

    Blocking, so it belongs in a `DecodePool`. 16-bit values are scaled, not clipped; colour
    profiles are left alone.

    Raises:
        ImageRejected: stage decode; the pixel data is damaged or incomplete.
    """
    with blame_image(image, "decode"):
        picture: Image.Image = open_picture(image.data, header.format)
        # A TIFF turns itself while it loads; it shall not listen to an orientation in its XMP.
        picture.info.pop("xmp", None)
        picture.load()
        picture = _to_colour(picture, with_alpha)
    if header.orientation in _TURNS:
        picture = picture.transpose(_TURNS[header.orientation])
    return picture


def _to_colour(picture: Image.Image, with_alpha: bool) -> Image.Image:
    if not with_alpha:
        picture.info.pop("transparency", None)
    if picture.mode.startswith("I;16"):
        return _scale_16_bits(picture, with_alpha)
    return picture.convert("RGBA" if with_alpha else "RGB")


def _scale_16_bits(picture: Image.Image, with_alpha: bool) -> Image.Image:
    values = np.asarray(picture).astype(np.uint32)
    gray = ((values + 128) // 257).astype(np.uint8)  # 65535 becomes 255, rounded to nearest
    channels = [gray, gray, gray]
    if with_alpha:
        is_key = values == picture.info.get("transparency", -1)
        channels.append(np.where(is_key, 0, 255).astype(np.uint8))
    return Image.fromarray(np.stack(channels, axis=-1))
