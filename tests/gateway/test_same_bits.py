"""Whoever resizes, gateway or owner: the tower sees the same bits of every kind of file."""

import msgspec
import numpy as np
import pytest
import torch

from gateway.encoding.payload import Form, as_payload, make_bytes
from gateway.images.header import read_header
from tests.gateway.decoding import LIMITS, WHITE
from tests.gateway.files import FILES, source
from tests.plans import make_plan
from workers.families.plan import Background, ImagePlan, Size, plain
from workers.messages import Payload, Pixels, Region
from workers.vision.preprocess import cut, resized

pytestmark = pytest.mark.usefixtures("pillow")

_BOARD = Background(stage="after_resize", square=8, first=(255,) * 3, second=(180,) * 3)
GROUNDS = {
    "none": None,
    "white": WHITE,
    "colour": plain((9, 130, 77)),
    "board": _BOARD,
    "board-early": msgspec.structs.replace(_BOARD, stage="before_resize"),
}


def plan_for(source_size: Size, resized_size: Size, background: Background | None) -> ImagePlan:
    """Cut into patches of 14 by 14 behind some padding."""
    rows, columns = (-(-side // 28) * 2 for side in resized_size)
    return make_plan(
        source_size,
        resized_size=resized_size,
        padded_size=(rows * 14, columns * 14),
        grid=(1, rows, columns),
        background=background,
    )


def patches_of(name: str, plan: ImagePlan, form: Form) -> torch.Tensor:
    """What an owner that got this form would digest; the payload goes over the wire."""
    image = source(FILES[name])
    header = read_header(image, LIMITS)
    data = make_bytes(image, header, plan, form)
    sent = msgspec.msgpack.encode(as_payload(form, Region(0, 0, len(data)), header, plan))
    payload = msgspec.msgpack.decode(sent, type=Payload)
    assert isinstance(payload, Pixels)
    values = np.frombuffer(data, np.uint8)
    pixels = torch.tensor(values).view(payload.height, payload.width, payload.channels)
    return cut(pixels if payload.stage == "resized" else resized(pixels, plan), plan)


@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("name", FILES)
def test_an_owner_makes_of_the_source_what_the_gateway_makes(name: str, ground: str) -> None:
    size = read_header(source(FILES[name]), LIMITS).displayed_size
    for target in ((28, 42), (80, 65), (13, 120), size):
        plan = plan_for(size, target, GROUNDS[ground])
        assert torch.equal(patches_of(name, plan, "source"), patches_of(name, plan, "resized"))


@pytest.mark.parametrize("name", ["png-rgba", "gif-key", "tiff-rgba", "png-la"])
def test_the_ground_of_a_transparent_picture_is_noticed(name: str) -> None:
    size = read_header(source(FILES[name]), LIMITS).displayed_size
    plans = [plan_for(size, (28, 42), ground) for ground in GROUNDS.values()]
    made = {patches_of(name, plan, "source").numpy().tobytes() for plan in plans}
    assert len(made) == len(plans)
