"""Parts that bring tensors: refused unless allowed, and then unpacked as images are."""

import base64
from typing import Any

import orjson
import pytest

from config.settings import DEMO_MODEL, ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.prompt import ImageRef, ImageSlot, Prompt, make_prompt
from gateway.schemas.schema import parse_request
from tests.tensor_files import tensor_part

CHECKPOINT = load_checkpoint(DEMO_MODEL)
ALLOWED = ImageSettings(allow_tensor_inputs=True, max_tensor_bytes=3000, max_image_bytes=1024)
DATA = bytes(range(250))
IMAGE = {"type": "image_url", "image_url": "http://h/0"}
TEXT = {"type": "text", "text": "What is it?"}


def prompt(*parts: dict[str, Any], limits: ImageSettings = ALLOWED) -> Prompt:
    body = {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}
    return make_prompt(
        parse_request(orjson.dumps(body)),
        request_id="r1",
        checkpoint=CHECKPOINT,
        limits=limits,
        request_seconds=60.0,
        now=1000.0,
    )


def test_tensors_and_images_are_numbered_together() -> None:
    detailed = tensor_part(DATA, uuid="cat")
    detailed["image_tensors"]["detail"] = "low"
    alone = {"type": "image_tensors", "uuid": "cat"}
    made = prompt(IMAGE, TEXT, detailed, alone)
    field = "messages[0].content"
    assert made.turns[0].parts == (ImageSlot(0), "What is it?", ImageSlot(1), ImageSlot(2))
    assert made.images == (
        ImageRef(0, f"{field}[0].image_url", "http://h/0"),
        ImageRef(1, f"{field}[2].image_tensors.data", DATA, "cat", "tensors"),
        ImageRef(2, f"{field}[3].uuid", None, "cat", "tensors"),
    )


@pytest.mark.parametrize("part", [tensor_part(DATA), {"type": "image_tensors", "uuid": "cat"}])
def test_unless_told_so_no_tensors_are_taken(part: dict[str, Any]) -> None:
    with pytest.raises(ImageRejected) as caught:
        prompt(IMAGE, part, limits=ImageSettings())
    error = caught.value
    assert (error.status, error.code, error.stage) == (400, "tensors_not_allowed", "limit")
    assert (error.index, error.param) == (1, "messages[0].content[1].type")


@pytest.mark.parametrize("num_bytes", [2999, 3000, 3001, 9000])
def test_the_limit_of_tensors_is_their_own(num_bytes: int) -> None:
    part = tensor_part(bytes(num_bytes))
    if num_bytes <= 3000:
        assert prompt(part).images[0].source == bytes(num_bytes)
        return
    with pytest.raises(ImageTooLarge, match=f"{num_bytes} bytes; the limit is 3000") as caught:
        prompt(part)
    assert (caught.value.status, caught.value.index) == (413, 0)


@pytest.mark.parametrize("data", ["@@@@", "AAAAA", "data:,AAAA", "AA==AAAA", "\u00e9AAA"])
def test_what_is_no_base64_is_refused(data: str) -> None:
    with pytest.raises(ImageRejected) as caught:
        prompt(TEXT, {"type": "image_tensors", "image_tensors": {"data": data}})
    error = caught.value
    assert (error.status, error.code, error.index) == (400, "invalid_base64", 0)
    assert error.param == "messages[0].content[1].image_tensors.data"


def test_all_forms_of_base64_give_the_same_bytes() -> None:
    digits = base64.b64encode(DATA).decode()
    for data in (
        digits,
        digits.rstrip("="),
        base64.urlsafe_b64encode(DATA).decode(),
        f" {digits}\n",
    ):
        part = {"type": "image_tensors", "image_tensors": {"data": data}}
        assert prompt(part).images[0].source == DATA
