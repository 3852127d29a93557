"""An image that was shown before is neither decoded nor encoded again, and never confused."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from tests.journeys.server import Server, running
from tests.pictures import data_uri, draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

COLOUR = text_part("What colour is this?")


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server of this file's own, whose counts nobody else changes."""
    with running(workers="cpu:vision,cpu:vision,cpu:language") as server:
        yield server


def ask(server: Server, *parts: dict[str, Any]) -> str:
    answer = server.client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": list(parts)}]
    )
    return str(answer.choices[0].message.content)


def work(server: Server) -> tuple[float, float]:
    """Images decoded and encoded so far."""
    decoded = server.metric("fovea_stage_seconds_count", stage="decode")
    return decoded, server.metric("fovea_images_encoded_total")


def test_one_picture_three_times_is_encoded_once_and_seen_three_times(own: Server) -> None:
    decoded, images = work(own)
    part = image_part(draw_shape("red", "circle", (150, 131)))
    body: dict[str, Any] = {
        "model": own.model,
        "messages": [{"role": "user", "content": [part, part, text_part("Same?"), part]}],
    }
    usage = own.post(body).json()["usage"]
    assert work(own) == (decoded + 1, images + 1)
    assert own.metric("fovea_payloads_total", payload="Pixels") == images + 1
    assert own.metric("fovea_placements_total") == images + 1
    assert own.metric("fovea_owner_load_patches") == 0
    body["messages"][0]["content"] = [part]
    once = own.post(body).json()["usage"]
    assert usage["prompt_tokens_details"]["image_tokens"] == (
        3 * once["prompt_tokens_details"]["image_tokens"]
    )
    assert work(own) == (decoded + 1, images + 1)


def test_pictures_of_equal_size_are_told_apart_when_they_come_again(own: Server) -> None:
    colours = ("red", "blue", "green", "yellow", "purple")
    parts = {colour: image_part(draw_shape(colour, "square", (148, 132))) for colour in colours}
    first = [ask(own, parts[colour], COLOUR) for colour in colours]
    before = work(own)
    again = [ask(own, parts[colour], COLOUR) for colour in reversed(colours)]
    assert first == list(colours)
    assert again == list(reversed(colours))
    assert work(own) == before


def test_equal_pixels_in_another_file_are_another_source(own: Server) -> None:
    picture = draw_shape("blue", "triangle", (151, 127))
    _, images = work(own)
    assert ask(own, image_part(picture), COLOUR) == ask(own, image_part(picture, "BMP"), COLOUR)
    assert work(own)[1] == images + 2


def named(name: str, picture: Image.Image | None = None) -> dict[str, Any]:
    url = None if picture is None else {"url": data_uri(picture)}
    return {"type": "image_url", "image_url": url, "uuid": name}


def test_a_callers_name_brings_the_image_back_and_the_image_decides(own: Server) -> None:
    red, blue = (draw_shape(colour, "circle", (149, 133)) for colour in ("red", "blue"))
    assert ask(own, named("mine", red), COLOUR) == "red"
    before = work(own)
    assert ask(own, named("mine"), COLOUR) == "red"
    assert work(own) == before
    assert ask(own, named("mine", blue), COLOUR) == "blue"
    assert ask(own, named("mine"), COLOUR) == "blue"


def test_a_name_without_an_image_asks_for_it(own: Server) -> None:
    body: dict[str, Any] = {
        "model": own.model,
        "messages": [{"role": "user", "content": [COLOUR, named("never shown")]}],
    }
    response = own.post(body)
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["code"] == "image_not_kept"
    assert error["param"] == "messages[0].content[1].uuid"
    assert error["image_index"] == 0


def test_kept_images_outlive_the_process_that_encoded_them(own: Server) -> None:
    picture = draw_shape("green", "square", (153, 129))
    assert ask(own, image_part(picture), COLOUR) == "green"
    lost = own.metric("fovea_worker_lost_total")
    for pid in own.workers():
        os.kill(pid, signal.SIGKILL)
    own.wait_for("fovea_worker_lost_total", lost + 3)
    own.wait_ready()
    before = work(own)
    assert ask(own, image_part(picture), COLOUR) == "green"
    assert work(own) == before


def test_one_other_pixel_makes_another_image(own: Server) -> None:
    picture = draw_shape("red", "square", (152, 130))
    assert ask(own, image_part(picture), COLOUR) == "red"
    picture.putpixel((3, 3), (0, 0, 0))
    _, images = work(own)
    assert ask(own, image_part(picture), COLOUR) == "red"
    assert work(own)[1] == images + 1


def test_nothing_is_kept_when_told_so() -> None:
    with running(embedding_cache_share=0, prefix_cache="false") as server:
        part = image_part(draw_shape("red", "circle"))
        for _ in range(2):
            assert ask(server, part, COLOUR) == "red"
        assert server.metric("fovea_images_encoded_total") == 2
        assert server.metric("fovea_embedding_idle_bytes") == 0
