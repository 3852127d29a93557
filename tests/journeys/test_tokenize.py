"""A prompt is counted as chat counts it, from what files say about themselves and nothing else."""

import base64
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from PIL import Image
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from tests.journeys.server import Server
from tests.pictures import encoded, image_part, noise, text_part

pytestmark = pytest.mark.slow

Body = dict[str, Any]


def tokenize(server: Server, **body: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/tokenize", json=body, timeout=20)


def user(*parts: Body) -> Body:
    return {"role": "user", "content": list(parts)}


def turned(size: tuple[int, int]) -> Body:
    """A JPEG that is shown with its sides swapped."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = encoded(noise(5, size), "JPEG", exif=exif)
    url = f"data:image/jpeg;base64,{base64.b64encode(file).decode()}"
    return {"type": "image_url", "image_url": {"url": url}}


def small(part: Body) -> Body:
    return {"type": "image_url", "image_url": part["image_url"] | {"detail": "low"}}


BMP = image_part(noise(2, (61, 500)), "BMP")
TEXT = text_part("Which is larger?")
BODIES: dict[str, Body] = {
    "text": {"messages": [{"role": "user", "content": "Привет, how are you?"}]},
    "one image": {"messages": [user(image_part(noise(1, (333, 222))), TEXT)]},
    "three images": {
        "messages": [
            {"role": "system", "content": [text_part("Be brief.")]},
            user(BMP, TEXT, image_part(noise(3, (90, 91)), "GIF")),
            {"role": "assistant", "content": "The first."},
            user(image_part(noise(4, (1200, 30)), "WEBP")),
        ]
    },
    "an image that is turned": {"messages": [user(turned((400, 64)))]},
    "low detail": {"messages": [user(small(image_part(noise(6, (640, 482)))), TEXT)]},
    "most pixels": {"messages": [user(image_part(noise(7, (640, 483))) | {"max_pixels": 9000})]},
    "an answer that goes on": {
        "messages": [
            user(image_part(noise(8, (77, 99))), TEXT),
            {"role": "assistant", "content": "The"},
        ],
        "continue_final_message": True,
    },
    "no answer opened": {"messages": [user(TEXT)], "add_generation_prompt": False},
    "variables": {"messages": [user(TEXT)], "chat_template_kwargs": {"colour": "red"}},
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_the_count_is_the_one_that_chat_reports(demo: Server, body: Body) -> None:
    counted = tokenize(demo, **body).json()
    usage = demo.post(body | {"model": demo.model, "max_tokens": 1}).json()["usage"]
    assert counted["count"] == usage["prompt_tokens"] == len(counted["tokens"])
    assert counted["max_model_len"] == 2048


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    """The server with workers that do nothing."""
    workers = server.workers()
    for worker in workers:
        os.kill(worker, signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)


def test_no_worker_is_asked_and_no_pixel_decoded(demo: Server) -> None:
    whole = encoded(noise(9, (345, 234)))
    parts = []
    for file in (whole, whole[: len(whole) // 2]):
        url = f"data:image/png;base64,{base64.b64encode(file).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    before = demo.metric("fovea_stage_seconds_count", stage="decode")
    with frozen(demo):
        counts = [tokenize(demo, messages=[user(part)]).json()["count"] for part in parts]
    assert counts[0] == counts[1]
    assert demo.metric("fovea_stage_seconds_count", stage="decode") == before
    refused = demo.post({"model": demo.model, "messages": [user(parts[1])]})
    assert refused.status_code == 400  # the half that is missing would be seen


def test_a_text_is_counted_as_it_stands_and_comes_back(demo: Server) -> None:
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    text = "<|im_start|>user\nHow много? 🦊<|im_end|>\n"
    told = tokenize(demo, prompt=text, model=demo.model, return_token_strs=True).json()
    assert told["tokens"] == tokenizer.encode(text).ids
    assert told["token_strs"] == tokenizer.encode(text).tokens
    back = httpx.post(f"{demo.url}/detokenize", json={"tokens": told["tokens"]}).json()
    assert back == {"prompt": text}


def test_a_prompt_that_does_not_fit_is_counted_and_an_endless_one_refused(demo: Server) -> None:
    assert tokenize(demo, prompt="a b " * 1500).json()["count"] >= 2048
    refused = tokenize(demo, prompt="a b " * 9000)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"


WRONG: list[tuple[str, Body, int, str]] = [
    ("tokenize", {}, 400, "messages"),
    ("tokenize", {"prompt": "a", "messages": []}, 400, "messages"),
    ("tokenize", {"prompt": 5}, 400, "prompt"),
    ("tokenize", {"prompt": "a", "model": "other"}, 404, "model"),
    (
        "tokenize",
        {"prompt": "a", "chat_template_kwargs": True},
        400,
        "chat_template_kwargs",
    ),
    ("tokenize", {"prompt": "a", "tools": 5}, 400, "tools"),
    ("tokenize", {"messages": [{"role": "elf", "content": ""}]}, 400, "messages[0].role"),
    ("tokenize", {"messages": [user(TEXT)], "temperature": 9}, 400, "temperature"),
    ("detokenize", {}, 400, "tokens"),
    ("detokenize", {"tokens": []}, 400, "tokens"),
    ("detokenize", {"tokens": [5, 10**6]}, 400, "tokens[1]"),
    ("detokenize", {"tokens": [5, 2**40]}, 400, "tokens[1]"),
    ("detokenize", {"tokens": ["a"]}, 400, "tokens[0]"),
]


@pytest.mark.parametrize(("route", "body", "status", "param"), WRONG)
def test_what_is_wrong_is_named(
    demo: Server, route: str, body: Body, status: int, param: str
) -> None:
    response = httpx.post(f"{demo.url}/{route}", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (status, param)
