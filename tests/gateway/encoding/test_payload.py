"""Which form an image travels in, how many bytes that is, and what its owner is told."""

from itertools import pairwise
from typing import Any

import msgspec
import pytest

from config.settings import ImageSettings
from config.workers import parse_workers
from gateway.encoding.payload import (
    Form,
    as_payload,
    choose_form,
    choose_pixels,
    image_backend,
    make_bytes,
    payload_bytes,
)
from gateway.errors import ImageRejected
from gateway.images.header import ImageHeader, read_header
from tests.gateway.decoding import LIMITS, WHITE, plan_for
from tests.gateway.files import FILES, orientation, source
from tests.pictures import encoded, noise
from tests.plans import make_plan
from workers.families.plan import Background, ImagePlan
from workers.messages import JpegBytes, Pixels, Region

pytestmark = pytest.mark.usefixtures("pillow")

FORMS: tuple[Form, ...] = ("jpeg", "source", "resized")
REGION = Region(1, 64, 4096)
KIMI_PIXELS = 17_856 * 14 * 14  # the most that a limit of 16384 patches comes to


def header_of(size: tuple[int, int], **fields: Any) -> ImageHeader:
    """The header of a PNG of (height, width), but for `fields`."""
    defaults: dict[str, Any] = {
        "format": "PNG", "width": size[1], "height": size[0], "orientation": 1, "mode": "RGB",
        "has_alpha": False, "is_plain_jpeg": False, "num_frames": 1,
    }  # fmt: skip
    return ImageHeader(**(defaults | fields))


def form_of(size: tuple[int, int], has_alpha: bool = False, **fields: Any) -> Form:
    plan = make_plan(size, backend="cuda", **fields)
    return choose_form(header_of(size, has_alpha=has_alpha), plan, KIMI_PIXELS)


# ---- the rule


@pytest.mark.parametrize("name", FILES)
def test_on_the_cpu_every_image_is_resized_in_the_gateway(name: str) -> None:
    header = read_header(source(FILES[name]), LIMITS)
    plan = make_plan(header.displayed_size, backend="cpu")
    assert choose_form(header, plan, 10**9) == "resized"


@pytest.mark.parametrize("name", FILES)
def test_on_cuda_a_jpeg_goes_as_it_is_and_the_rest_as_pixels(name: str) -> None:
    header = read_header(source(FILES[name]), LIMITS)
    plan = make_plan(header.displayed_size, backend="cuda")
    is_jpeg = name.startswith("jpeg") and name != "jpeg-cmyk"
    assert choose_form(header, plan, 10**9) == ("jpeg" if is_jpeg else "source")


@pytest.mark.parametrize("name", FILES)
def test_what_an_owner_could_not_decode_goes_as_pixels_by_the_same_rule(name: str) -> None:
    header = read_header(source(FILES[name]), LIMITS)
    for backend in ("cpu", "cuda"):
        plan = make_plan(header.displayed_size, backend=backend)
        for most in (1, 10**9):
            form, pixels = (rule(header, plan, most) for rule in (choose_form, choose_pixels))
            assert pixels == ("source" if backend == "cuda" and most > 1 else "resized")
            assert form in (pixels, "jpeg")


# Where a rule that compares with the image's own resized size goes to and fro.
FLIPS = [
    [(3120, 4160), (3123, 4164), (3126, 4168), (3129, 4172), (3132, 4176), (3138, 4184)],
    [(side, side) for side in (3585, 3586, 3598, 3601, 3612, 3640)],
    [(side, side) for side in (3108, 3120, 3131, 3142, 3153)],
    [(2340, 4160), (2349, 4176), (2367, 4208)],
    [(side, side) for side in range(3000, 4000)],
    [(side, side * 4 // 3) for side in range(2500, 3500)],
    [(side * 9 // 16, side) for side in range(4000, 5000)],
    [(1, side) for side in range(1, 60_000, 97)],
]


@pytest.mark.parametrize("has_alpha", [False, True])
@pytest.mark.parametrize("sizes", FLIPS, ids=lambda sizes: f"{sizes[0]}-{sizes[-1]}")
def test_as_an_image_grows_its_form_changes_once_at_most(
    sizes: list[tuple[int, int]], has_alpha: bool
) -> None:
    forms = [form_of(size, has_alpha) for size in sizes]
    assert sum(first != second for first, second in pairwise(forms)) <= 1
    assert forms == sorted(forms, reverse=True)  # "source" before "resized"


def test_the_rule_asks_nothing_about_the_resized_size() -> None:
    size = (3800, 3800)
    assert {form_of(size, resized_size=(side, side)) for side in (28, 1820, 9000)} == {"resized"}
    size = (3700, 3700)
    assert {form_of(size, resized_size=(side, side)) for side in (28, 1820, 9000)} == {"source"}


def test_an_alpha_that_shows_makes_a_source_larger() -> None:
    size = (3400, 3400)
    assert form_of(size, has_alpha=True) == "resized"
    assert form_of(size, has_alpha=True, background=None) == form_of(size) == "source"


@pytest.mark.parametrize(
    ("workers", "forced", "backend"),
    [
        ("cpu:vision+language", False, "cpu"),
        ("cuda:0:vision+language", False, "cuda"),
        ("cuda:vision+language", False, "cuda"),
        ("cuda:0:vision,cuda:1:vision,cpu:language", False, "cuda"),
        ("cuda:0:vision,cpu:vision,cuda:1:language", False, "cpu"),  # all owners, or none
        ("cpu:vision,cuda:0:language", False, "cpu"),
        ("cuda:0:vision+language", True, "cpu"),
        ("cpu:vision+language", True, "cpu"),
    ],
)
def test_the_backend_is_that_of_all_owners_unless_it_is_forced(
    workers: str, forced: bool, backend: str
) -> None:
    images = ImageSettings(force_cpu_image_preprocessing=forced)
    assert image_backend(parse_workers(workers), images) == backend


def test_forcing_the_cpu_changes_the_form_and_so_who_resizes() -> None:
    specs = parse_workers("cuda:0:vision+language")
    forms = []
    for forced in (False, True):
        backend = image_backend(specs, ImageSettings(force_cpu_image_preprocessing=forced))
        header = read_header(source(FILES["jpeg-rgb"]), LIMITS)
        plan = make_plan(header.displayed_size, backend=backend)
        forms.append(choose_form(header, plan, KIMI_PIXELS))
    assert forms == ["jpeg", "resized"]


# ---- the bytes

GROUNDS: list[Background | None] = [None, WHITE]


def forms_of(name: str) -> list[Form]:
    return [form for form in FORMS if form != "jpeg" or name.startswith("jpeg")]


def plan_of(name: str, background: Background | None = WHITE) -> tuple[ImageHeader, ImagePlan]:
    header = read_header(source(FILES[name]), LIMITS)
    return header, plan_for(header.displayed_size, (28, 42), background)


@pytest.mark.parametrize("background", GROUNDS)
@pytest.mark.parametrize("name", FILES)
def test_the_number_of_bytes_is_known_before_decoding(
    name: str, background: Background | None
) -> None:
    header, plan = plan_of(name, background)
    image = source(FILES[name])
    for form in forms_of(name):
        made = make_bytes(image, header, plan, form)
        assert len(made) == payload_bytes(form, image, header, plan)


@pytest.mark.parametrize("background", GROUNDS)
@pytest.mark.parametrize("name", FILES)
def test_source_pixels_have_an_alpha_only_where_it_shows(
    name: str, background: Background | None
) -> None:
    header, plan = plan_of(name, background)
    payload = as_payload("source", REGION, header, plan)
    transparent = any(word in name for word in ("rgba", "la", "key", "table"))
    assert isinstance(payload, Pixels)
    assert payload.channels == (4 if transparent and background else 3)
    assert (payload.height, payload.width) == header.displayed_size


def test_the_owner_is_told_how_to_read_the_bytes() -> None:
    data = encoded(noise(71, (40, 30)), "JPEG", exif=orientation(6))
    header = read_header(source(data), LIMITS)
    plan = plan_for((40, 30), (28, 42), WHITE)
    assert as_payload("jpeg", REGION, header, plan) == JpegBytes(REGION, 6)
    assert as_payload("source", REGION, header, plan) == Pixels(REGION, 40, 30, 3, "source")
    assert as_payload("resized", REGION, header, plan) == Pixels(REGION, 28, 42, 3, "resized")
    assert make_bytes(source(data), header, plan, "jpeg") == data


@pytest.mark.parametrize("form", ["source", "resized"])
def test_a_damaged_file_is_refused_in_every_form_that_is_decoded(form: Form) -> None:
    data = FILES["png-rgb"][:-100]
    header = read_header(source(data), LIMITS)
    plan = plan_for(header.displayed_size, (28, 42), WHITE)
    with pytest.raises(ImageRejected) as caught:
        make_bytes(source(data), header, plan, form)
    assert (caught.value.index, caught.value.stage) == (3, "decode")


def test_the_plan_and_not_the_library_says_which_pass_goes_first() -> None:
    header, plan = plan_of("png-rgb")
    image = source(FILES["png-rgb"])
    other = msgspec.structs.replace(plan, first_pass="vertical")
    assert plan.first_pass == "horizontal"
    made = [make_bytes(image, header, each, "resized") for each in (plan, other)]
    assert made[0] != made[1]
