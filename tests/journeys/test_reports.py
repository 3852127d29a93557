"""Requests that made other servers fail, by public reports; each with the answer that is right."""

import os
from typing import Any

import anyio
import httpx
import numpy as np
import pytest
from PIL import Image

from tests.journeys.server import Server
from tests.pictures import data_uri, draw_shape, image_part, noise, text_part

pytestmark = pytest.mark.slow

Body = dict[str, Any]


def user(*parts: Body) -> Body:
    return {"role": "user", "content": list(parts)}


def post(server: Server, messages: list[Body], **fields: Any) -> httpx.Response:
    return server.post({"model": server.model, "messages": messages} | fields)


def said(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["message"]["content"])


COLOUR = text_part("What colour is this?")


def test_all_spellings_of_an_image_are_the_same_image(demo: Server) -> None:
    uri = data_uri(draw_shape("red", "circle", (151, 149)))
    head, digits = uri.split(",")
    wrapped = "\r\n".join(digits[at : at + 76] for at in range(0, len(digits), 76))
    spellings: list[Any] = [
        {"url": uri},
        uri,
        {"url": uri.replace("image/png;", "image/png;charset=utf-8;")},
        {"url": f"{head},{wrapped}"},
        {"url": f"{head}, {digits[:50]} \t{digits[50:]}"},
        {"url": f"{head},{digits.replace('+', '-').replace('/', '_')}"},
    ]
    answers = [
        post(demo, [user({"type": "image_url", "image_url": each}, COLOUR)]) for each in spellings
    ]
    assert {said(answer) for answer in answers} == {"red"}
    counts = {answer.json()["usage"]["prompt_tokens"] for answer in answers}
    assert len(counts) == 1


@pytest.mark.parametrize("url", ["data:image/png,%89PNG", "data:image/png;base64", "iVBORw0KGgo="])
def test_what_is_no_data_uri_is_the_callers_mistake(demo: Server, url: str) -> None:
    response = post(demo, [user({"type": "image_url", "image_url": {"url": url}}, COLOUR)])
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "messages[0].content[0].image_url"
    assert len(response.content) < 1024


def test_placeholders_in_a_text_are_only_text(demo: Server) -> None:
    spelt = "```\n<|kimi_image_placeholder|><|image_pad|><|media_pad|>\n```"
    response = post(demo, [user(text_part(spelt))], max_tokens=1)
    assert response.json()["usage"]["prompt_tokens_details"]["image_tokens"] == 0
    picture = image_part(draw_shape("blue", "square", (149, 151)))
    response = post(demo, [user(text_part(spelt), picture)], max_tokens=1)
    assert response.json()["usage"]["prompt_tokens_details"]["image_tokens"] == 25


@pytest.mark.parametrize("size", [(224, 224), (512, 512), (224, 513)])
def test_an_image_counts_what_its_grid_says(demo: Server, size: tuple[int, int]) -> None:
    from transformers import AutoImageProcessor

    from config.settings import DEMO_MODEL

    image = noise(size[1], size)
    processor = AutoImageProcessor.from_pretrained(DEMO_MODEL)
    _, rows, columns = processor(images=[image], return_tensors="np")["image_grid_thw"][0]
    usage = post(demo, [user(image_part(image))], max_tokens=1).json()["usage"]
    assert usage["prompt_tokens_details"]["image_tokens"] == rows * columns // 4
    text = post(demo, [user(text_part("Image 1: "))], max_tokens=1).json()["usage"]
    # An image's first and last token stand around its own.
    assert usage["prompt_tokens"] == text["prompt_tokens"] + rows * columns // 4 + 2


def test_two_large_images_end_where_one_does(demo: Server) -> None:
    sizes = {"red": (512, 512), "blue": (511, 513)}
    pictures = [image_part(draw_shape(colour, "circle", size)) for colour, size in sizes.items()]
    for shown in (pictures[:1], pictures):
        response = post(demo, [user(*shown, text_part("What shape is this?"))], max_tokens=128)
        assert response.json()["choices"][0]["finish_reason"] == "stop"


def test_thirty_two_at_once_are_each_answered_about_their_own_image(demo: Server) -> None:
    colours = ("red", "green", "blue", "yellow")
    bodies = [
        {
            "model": demo.model,
            "messages": [
                user(image_part(draw_shape(colours[k % 4], "circle", (150 + k, 190 - k))), COLOUR)
            ],
            "temperature": 0,
        }
        for k in range(32)
    ]
    answers: dict[int, httpx.Response] = {}

    async def ask(client: httpx.AsyncClient, index: int) -> None:
        url = f"{demo.url}/v1/chat/completions"
        answers[index] = await client.post(url, json=bodies[index], timeout=60)

    async def run() -> None:
        async with httpx.AsyncClient() as client, anyio.create_task_group() as group:
            for index in range(32):
                group.start_soon(ask, client, index)

    anyio.run(run)
    alone = [demo.post(body) for body in bodies]
    assert [said(answers[k]) for k in range(32)] == [said(answer) for answer in alone]
    right = [said(answers[k]) == colours[k % 4] for k in range(32)]
    assert sum(right) >= 30  # the model itself may be wrong about one


HELLO: list[Body] = [{"role": "user", "content": "Hello!"}]


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [], "tool_choice": None},
        {"tools": None},
        {"stream_options": {"include_usage": True}},
        {"stream": False, "stream_options": {"include_usage": True}},
        {"stream": None, "stream_options": None, "stop": None, "seed": None},
    ],
    ids=str,
)
def test_what_asks_for_nothing_changes_nothing(demo: Server, fields: Body) -> None:
    told = post(demo, HELLO, max_tokens=8, **fields).json()
    plain = post(demo, HELLO, max_tokens=8).json()
    assert told["choices"] == plain["choices"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("route", "asked"),
    [
        ("chat/completions", {"messages": HELLO, "max_tokens": 1}),
        ("completions", {"prompt": "Hello!", "max_tokens": 1}),
        ("responses", {"input": "Hello!", "max_output_tokens": 1}),
    ],
)
def test_unknown_fields_are_named_once_and_never_lost(
    demo: Server, route: str, asked: Body, stream: bool
) -> None:
    body = {"model": demo.model, "stream": stream, "wizard": 1, "elf\r\n": {}} | asked
    response = httpx.post(f"{demo.url}/v1/{route}", json=body, timeout=30)
    assert response.status_code == 200
    assert response.headers.get_list("x-fovea-ignored-fields") == ["elf??, wizard"]
    plain = httpx.post(f"{demo.url}/v1/{route}", json={"model": demo.model} | asked, timeout=30)
    assert "x-fovea-ignored-fields" not in plain.headers


def test_an_image_that_pushes_a_prompt_over_is_told_apart(demo: Server) -> None:
    part = image_part(noise(3, (256, 250)))
    words = text_part("one two three " * 336)
    messages = [user(words, part)]
    error = post(demo, messages).json()["error"]
    assert error["code"] == "context_length_exceeded"
    counted = httpx.post(f"{demo.url}/tokenize", json={"messages": messages}).json()
    usage = post(demo, [user(part)], max_tokens=1).json()["usage"]
    num_image_tokens = usage["prompt_tokens_details"]["image_tokens"]
    told = f"{counted['count']} tokens, {num_image_tokens} of them for images"
    assert told in error["message"]
    assert "2048" in error["message"]
    assert post(demo, [user(words)], max_tokens=1).status_code == 200


def random_photo(size: tuple[int, int]) -> Image.Image:
    """A picture that no packing makes small."""
    width, height = size
    data = np.frombuffer(os.urandom(width * height * 3), np.uint8)
    return Image.fromarray(data.reshape(height, width, 3))


def test_bodies_of_ten_megabytes_are_taken(demo: Server) -> None:
    sizes = ((1280, 720), (1279, 721), (1278, 722))
    messages = [user(*(image_part(random_photo(size)) for size in sizes))]
    response = post(demo, messages, max_tokens=1)
    assert response.status_code == 200
    assert len(response.request.content) > 10_000_000


def test_a_body_over_the_limit_is_413_with_the_limit(demo: Server) -> None:
    limit = 64 << 20
    body = b'{"model": "' + b"x" * limit
    for route in ("v1/chat/completions", "v1/responses", "v1/completions", "tokenize"):
        response = httpx.post(f"{demo.url}/{route}", content=body, timeout=30)
        assert response.status_code == 413
        assert response.json()["error"]["code"] == "body_too_large"
        assert str(limit) in response.text
