"""Image files as inputs: their headers, and their pixels, held to the library's own reading.

Two promises beyond "no exception that is not ours". A header tells what the library itself tells
of the file, or is refused by a named error. And pixels are those that the library gives by the
plain rule, whatever lay in memory before: each file is decoded twice, and memory that is handed
out is filled with another value each time, so that bytes nobody wrote would differ.
"""

import ctypes
import io
import resource
import time
import zlib
from random import Random

import numpy as np
from PIL import Image, ImageFile, UnidentifiedImageError

from config.settings import ImageSettings
from gateway.errors import ImageRejected
from gateway.images.decode import decode
from gateway.images.fetch import SourceImage
from gateway.images.header import FAULTS, FORMATS, ImageHeader, read_header, set_up_pillow
from ops.fuzz.blocks import shake
from ops.fuzz.files import make_files
from ops.fuzz.mutate import mutate, splice
from ops.fuzz.target import Wrong

PARAM = "messages[0].content[0].image_url"
LIMITS = ImageSettings(max_image_pixels=1 << 20, max_image_side=4096)
MAX_SECONDS = 3.0  # of CPU time for one input
_MAX_WORDS = 200  # characters of an error
_M_PERTURB = -6  # glibc's name, from malloc.h
_ORIENTATION = 0x0112
_DAMAGED = "image 0: damaged or incomplete"


def make_file(files: tuple[bytes, ...], chance: Random) -> bytes:
    """One file, damaged in a way that mostly suits its format."""
    data = chance.choice(files)
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            return shake(data, chance)
        case 4 | 5 | 6 | 7:
            return mutate(data, chance)
        case 8:
            return mutate(shake(data, chance), chance)
        case _:
            return splice(data, chance.choice(files), chance)


class _Files:
    """What both targets have in common."""

    def __init__(self) -> None:
        set_up_pillow(LIMITS)
        self._files = make_files()

    def make(self, chance: Random) -> bytes:
        """A damaged file."""
        return make_file(self._files, chance)

    def close(self) -> None:
        """Nothing is held."""


class Headers(_Files):
    """Files whose headers are read."""

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        begun = time.process_time()
        try:
            header = read_header(SourceImage(0, PARAM, data), LIMITS)
        except ImageRejected as error:
            check_refusal(error)
            if error.message == _DAMAGED and opens(data):
                raise Wrong("the library reads the header of what was called damaged") from error
            return f"refused: {error.code}"
        finally:
            check_time(begun)
        check_header(header, data)
        return f"read: {header.format}"


class Pixels(_Files):
    """Files that are decoded."""

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        image = SourceImage(0, PARAM, data)
        with_alpha = bool(zlib.crc32(data) & 1)
        begun = time.process_time()
        try:
            header = read_header(image, LIMITS)
            fill_memory(0x5A)
            picture = decode(image, header, with_alpha)
        except ImageRejected as error:
            check_refusal(error)
            if error.stage == "decode" and pixels_of(data, with_alpha) is not None:
                raise Wrong("the library decodes what was called damaged") from error
            return f"refused: {error.stage} {error.code}"
        finally:
            check_time(begun)
        check_picture(picture, header, with_alpha)
        fill_memory(0xA5)
        check_pixels(picture, data, header, with_alpha)
        return f"decoded: {header.format}"


def check_refusal(error: ImageRejected) -> None:
    """Raise Wrong unless it is an error that callers may see."""
    if not 400 <= error.status < 500 or error.index != 0 or error.param != PARAM:
        raise Wrong(f"an error that blames nobody: {error.status} {error.index} {error.param}")
    if len(error.message) > _MAX_WORDS:
        raise Wrong(f"an error of {len(error.message)} characters")


def check_time(begun: float) -> None:
    """Raise Wrong after more CPU time than an input may take."""
    seconds = time.process_time() - begun
    if seconds > MAX_SECONDS:
        raise Wrong(f"it took {seconds:.1f} s")


def opens(data: bytes) -> bool:
    """Whether the library reads the header of the file as it came."""
    try:
        with Image.open(io.BytesIO(data), formats=tuple(FORMATS)):
            return True
    except (UnidentifiedImageError, *FAULTS):
        return False


def check_header(header: ImageHeader, data: bytes) -> None:
    """Raise Wrong if the library tells something else of the file.

    A PNG may be too strange for the library in what does not concern pixels, which we leave out.
    """
    try:
        picture = Image.open(io.BytesIO(data), formats=(header.format,))
    except (UnidentifiedImageError, *FAULTS) as error:
        if header.format != "PNG":
            raise Wrong(f"the library cannot read it: {error!r}"[:_MAX_WORDS]) from error
        return
    with picture:
        ours = (header.width, header.height, header.mode)
        theirs = (*picture.size, picture.mode)
        if ours != theirs:
            raise Wrong(f"the header is {theirs}, not {ours}")
        if header.format == "TIFF":  # the library turns it by itself
            return
        if header.orientation not in (told := orientations_of(picture, header)):
            raise Wrong(f"orientation {header.orientation}; the library has {told}")


def orientations_of(picture: ImageFile.ImageFile, header: ImageHeader) -> tuple[int, ...]:
    """EXIF's, as the library reads it; ours where the library cannot tell.

    At a tag that it cannot read, the library reads no further.
    """
    exif = Image.Exif()  # not the picture's own, which listens to XMP as well
    try:
        if header.format == "PNG":
            picture.load()  # EXIF may stand behind the pixels
        exif.load(picture.info.get("exif", b""))
        value: object = exif.get(_ORIENTATION)
    except FAULTS:
        return (header.orientation,)
    if isinstance(value, int) and 1 <= value <= 8:
        return (value,)
    return (1, header.orientation)


def check_picture(picture: Image.Image, header: ImageHeader, with_alpha: bool) -> None:
    """Raise Wrong if the picture is not what its header promised."""
    size = (picture.height, picture.width)
    if size != header.displayed_size:
        raise Wrong(f"{size} pixels; the header promised {header.displayed_size}")
    if picture.mode != ("RGBA" if with_alpha else "RGB"):
        raise Wrong(f"the mode is {picture.mode}")


def check_pixels(ours: Image.Image, data: bytes, header: ImageHeader, with_alpha: bool) -> None:
    """Raise Wrong if the library gives other pixels by the plain rule."""
    theirs = pixels_of(data, with_alpha)
    if theirs is None:
        if header.format != "PNG":
            raise Wrong("the library cannot decode it")
        return
    turned = Image.Transpose.__members__.get(_TURNS.get(header.orientation, ""))
    if turned is not None:
        theirs = theirs.transpose(turned)
    if ours.size != theirs.size or ours.tobytes() != theirs.tobytes():
        raise Wrong("other pixels than the library's, or bytes of memory that nobody wrote")


_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def pixels_of(data: bytes, with_alpha: bool) -> Image.Image | None:
    """The library's own pixels as they are stored, in RGB or RGBA; none if it cannot."""
    try:
        picture: Image.Image = Image.open(io.BytesIO(data), formats=tuple(FORMATS))
        picture.info.pop("xmp", None)
        picture.load()
    except (UnidentifiedImageError, *FAULTS):
        return None
    key = picture.info.get("transparency") if with_alpha else None
    if not with_alpha:
        picture.info.pop("transparency", None)
    if picture.mode.startswith("I;16"):
        return _from_16_bits(picture, key, with_alpha)
    try:
        return picture.convert("RGBA" if with_alpha else "RGB")
    except FAULTS:
        return None


def _from_16_bits(picture: Image.Image, key: int | None, with_alpha: bool) -> Image.Image:
    values = np.asarray(picture).astype(np.float64)
    gray = np.floor(values * 255 / 65535 + 0.5).astype(np.uint8)
    made = Image.merge("RGB", [Image.fromarray(gray)] * 3)
    if with_alpha:
        made.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8)))
    return made


def fill_memory(value: int) -> None:
    """Have the C library fill what it hands out from now on; glibc does, others need not."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, value)


def most_mebibytes() -> float:
    """The most memory that this process ever had, in mebibytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
