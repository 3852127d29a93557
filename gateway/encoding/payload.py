"""An image and its plan in, the bytes that its owner gets out: which form they have, and how many.

The form is decided by one rule from what is known before decoding, so that room for the bytes can
be taken first.
"""

from functools import partial
from typing import Literal

import numpy as np
from PIL import Image

from config.settings import ImageSettings
from config.workers import WorkerSpec
from gateway.encoding.flight import Made, Picture
from gateway.images.decode import decode
from gateway.images.fetch import SourceImage
from gateway.images.header import ImageHeader
from gateway.images.tensors import TensorHeader
from workers.families.ground import lay_on
from workers.families.plan import Backend, ImagePlan
from workers.messages import JpegBytes, Payload, Pixels, Region

Form = Literal["jpeg", "source", "resized"]

# Source pixels travel as long as they take no more bytes than the float32 patches of the largest
# resized picture would. The bound is the family's and not this image's: a resized size goes up in
# steps, and a rule that compares with it would flip back and forth as an image grows.
_SOURCE_FACTOR = 4


class PayloadRule:
    """The rule below, as flights ask for it; see `gateway.encoding.flight.Payloads`."""

    def __init__(self, max_resized_pixels: int) -> None:
        """`max_resized_pixels` is the family's bound, see its layout."""
        self._max_resized_pixels = max_resized_pixels

    def num_bytes(self, picture: Picture) -> int:
        """Room for the form that is chosen, and for the pixels if the owner cannot decode."""
        if isinstance(picture.header, TensorHeader):
            return len(picture.source.data)
        header, plan = _header(picture), picture.task.plan
        forms: set[Form] = {self._form(picture, decoded=decoded) for decoded in (False, True)}
        return max(payload_bytes(form, picture.source, header, plan) for form in forms)

    def make(self, picture: Picture, *, decoded: bool) -> Made:
        """Decode as far as the form asks for; tensors go on as they came."""
        if isinstance(picture.header, TensorHeader):
            return picture.source.data, picture.header.as_payload
        form, header, plan = (
            self._form(picture, decoded=decoded),
            _header(picture),
            picture.task.plan,
        )
        data = make_bytes(picture.source, header, plan, form)
        return data, partial(as_payload, form, header=header, plan=plan)

    def _form(self, picture: Picture, *, decoded: bool) -> Form:
        choose = choose_pixels if decoded else choose_form
        return choose(_header(picture), picture.task.plan, self._max_resized_pixels)


def _header(picture: Picture) -> ImageHeader:
    # What was only named never takes off, and tensors were sent on their way before.
    assert isinstance(picture.header, ImageHeader)
    return picture.header


def image_backend(specs: tuple[WorkerSpec, ...], images: ImageSettings) -> Backend:
    """Where images are decoded and preprocessed, decided once for all of them.

    On CUDA if every owner has such a device, unless the operator forces the CPU.
    """
    owners = [spec for spec in specs if "vision" in spec.roles]
    all_cuda = all(spec.device.startswith("cuda") for spec in owners)
    return "cuda" if all_cuda and not images.force_cpu_image_preprocessing else "cpu"


def choose_form(header: ImageHeader, plan: ImagePlan, max_resized_pixels: int) -> Form:
    """Which form of an image its owner gets; as an image grows, it changes once at most.

    Args:
        header: the image's header.
        plan: the image's plan.
        max_resized_pixels: the family's upper bound of height times width after resizing.
    """
    is_jpeg = header.is_plain_jpeg and plan.backend == "cuda"
    return "jpeg" if is_jpeg else choose_pixels(header, plan, max_resized_pixels)


def choose_pixels(
    header: ImageHeader, plan: ImagePlan, max_resized_pixels: int
) -> Literal["source", "resized"]:
    """As `choose_form`, for an image that is decoded here, as when its owner could not."""
    num_bytes = _num_values("source", header, plan)
    is_small = num_bytes <= _SOURCE_FACTOR * 3 * max_resized_pixels
    return "source" if is_small and plan.backend == "cuda" else "resized"


def payload_bytes(form: Form, image: SourceImage, header: ImageHeader, plan: ImagePlan) -> int:
    """How many bytes `make_bytes` gives, to the byte, before anything is decoded."""
    return len(image.data) if form == "jpeg" else _num_values(form, header, plan)


def make_bytes(image: SourceImage, header: ImageHeader, plan: ImagePlan, form: Form) -> bytes:
    """The bytes of an image in one form. Pure and blocking, so it belongs in a `DecodePool`.

    Raises:
        ImageRejected: stage decode; the pixel data is damaged or incomplete.
    """
    if form == "jpeg":
        return image.data
    picture = decode(image, header, _has_alpha(header, plan))
    return (_resized(picture, plan) if form == "resized" else picture).tobytes()


def as_payload(form: Form, region: Region, header: ImageHeader, plan: ImagePlan) -> Payload:
    """What tells the owner how to read the bytes that lie in `region`."""
    if form == "jpeg":
        return JpegBytes(region, header.orientation)
    height, width, channels = _shape(form, header, plan)
    return Pixels(region, height, width, channels, form)


def _num_values(form: Form, header: ImageHeader, plan: ImagePlan) -> int:
    height, width, channels = _shape(form, header, plan)
    return height * width * channels


def _shape(form: Form, header: ImageHeader, plan: ImagePlan) -> tuple[int, int, Literal[3, 4]]:
    if form == "resized":
        return *plan.resized_size, 3
    return *header.displayed_size, 4 if _has_alpha(header, plan) else 3


def _has_alpha(header: ImageHeader, plan: ImagePlan) -> bool:
    """Whether transparency matters; without a ground it is dropped before anything else."""
    return header.has_alpha and plan.background is not None


def _resized(picture: Image.Image, plan: ImagePlan) -> Image.Image:
    """To RGB of the planned size, on the plan's background; the same bits as an owner's."""
    if plan.background and plan.background.stage == "before_resize":
        picture = _on_ground(picture, plan)
    return _on_ground(_resample(picture, plan), plan)


def _on_ground(picture: Image.Image, plan: ImagePlan) -> Image.Image:
    if picture.mode == "RGB" or plan.background is None:
        return picture
    return Image.fromarray(lay_on(np.asarray(picture), plan.background))


def _resample(picture: Image.Image, plan: ImagePlan) -> Image.Image:
    """Resize by the library, one pass at a time: which goes first is the plan's to say."""
    height, width = plan.resized_size
    if picture.size == (width, height):
        return picture
    mode = picture.mode
    if mode == "RGBA":
        picture = picture.convert("RGBa")  # alpha multiplied in, as the library does by itself
    rows_first = plan.first_pass == "vertical"
    between = (picture.width, height) if rows_first else (width, picture.height)
    for size in (between, (width, height)):
        if picture.size != size:
            picture = picture.resize(size, Image.Resampling.BICUBIC)
    return picture.convert(mode)
