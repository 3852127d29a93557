"""What a refused request held goes with it, and waits for no collector of cycles."""

import base64
import gc
import json
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from ops.fuzz.house import House
from tests.pictures import encoded, noise

pytestmark = pytest.mark.slow


def picture(data: bytes) -> dict[str, Any]:
    url = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return {"content": [{"type": "image_url", "image_url": {"url": url}}]}


def form_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}


BODIES = {
    "a prompt of too many characters": {"content": 90_000 * "long words "},
    "a prompt of too many tokens": {"content": 3000 * "words "},
    "no image": picture(b"\x89PNG\r\n\x1a\nand nothing else"),
    "half an image": picture(encoded(noise(5, (61, 47)))[:-900]),
    "no schema": {"content": "hi", "response_format": form_of({"type": "colour"})},
}


@pytest.fixture(scope="module")
def house() -> Iterator[House]:
    house = House()
    yield house
    house.close()


@pytest.fixture
def garbage() -> Iterator[list[Any]]:
    """What was found in cycles, by whoever collects."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    yield gc.garbage
    gc.set_debug(0)
    gc.garbage.clear()
    gc.enable()


@pytest.mark.parametrize("name", BODIES)
def test_a_refused_request_leaves_no_frame_behind(
    house: House, garbage: list[Any], name: str
) -> None:
    content, fields = BODIES[name]["content"], {**BODIES[name]}
    del fields["content"]
    body = {"model": "demo_model", "messages": [{"role": "user", "content": content}], **fields}
    for _ in range(2):  # a thread lets go of its last failure when it gets work
        assert house.post("/v1/chat/completions", json.dumps(body).encode()).status == 400
    gc.collect()
    assert [each.f_code.co_qualname for each in garbage if isinstance(each, FrameType)] == []
