"""Bad input of every kind: a clear 4xx in OpenAI's form, and nothing else happens."""

import base64
import re
import zlib
from typing import Any

import httpx
import openai
import pytest

from tests.journeys.server import Server
from tests.pictures import data_uri, draw_shape, encoded, image_part, noise, text_part

pytestmark = pytest.mark.slow

PNG = encoded(noise(1, (90, 70)))
JPEG = encoded(noise(2, (120, 80)), "JPEG")


def uri(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def picture(url: object) -> dict[str, Any]:
    """A body with one image."""
    return user([{"type": "image_url", "image_url": {"url": url}}, text_part("What is it?")])


def user(content: object) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def plain(**fields: object) -> dict[str, Any]:
    return user("hello") | fields


def schema(body: object) -> dict[str, Any]:
    """A response format."""
    return {"type": "json_schema", "json_schema": {"name": "it", "schema": body}}


PART = "messages[0].content[0]"
SCHEMA = "response_format.json_schema.schema"
ENDLESS = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
SVG = uri(b"<svg/>", "image/svg+xml")
UNKEPT = schema({"not": {}})

# (what it is, body, status, param, word in the message)
BAD: list[tuple[str, dict[str, Any], int, str | None, str]] = [
    ("no messages", {}, 400, "messages", ""),
    ("messages of a wrong type", {"messages": "hello"}, 400, "messages", ""),
    ("empty messages", {"messages": []}, 400, "messages", ""),
    ("unknown role", {"messages": [{"role": "elf", "content": "x"}]}, 400, "messages[0].role", ""),
    ("no content", {"messages": [{"role": "user"}]}, 400, "messages[0]", ""),
    ("content of a wrong type", user(7), 400, "messages[0].content", ""),
    ("unknown part", user([{"type": "smell"}]), 400, PART, ""),
    ("part without its text", user([{"type": "text"}]), 400, PART, ""),
    ("unknown model", plain(model="gpt-9"), 404, "model", "gpt-9"),
    ("model of a wrong type", plain(model=3), 400, "model", ""),
    ("temperature too high", plain(temperature=9), 400, "temperature", "2"),
    ("temperature as text", plain(temperature="hot"), 400, "temperature", ""),
    ("top_p zero", plain(top_p=0), 400, "top_p", ""),
    ("top_p over one", plain(top_p=1.5), 400, "top_p", ""),
    ("top_k below minus one", plain(top_k=-5), 400, "top_k", ""),
    ("max_tokens zero", plain(max_tokens=0), 400, "max_tokens", ""),
    ("max_tokens as text", plain(max_tokens="5"), 400, "max_tokens", ""),
    ("max_tokens as a truth value", plain(max_tokens=True), 400, "max_tokens", ""),
    ("stream as text", plain(stream="yes"), 400, "stream", ""),
    ("stop of a wrong type", plain(stop={"a": 1}), 400, "stop", ""),
    ("n over the limit", plain(n=9), 400, "n", "8"),
    ("logprobs as a number", plain(logprobs=5), 400, "logprobs", ""),
    ("unknown format", plain(response_format={"type": "xml"}), 400, "response_format", "xml"),
    ("format without its type", plain(response_format={}), 400, "response_format.type", ""),
    ("schema of no schema", plain(response_format=schema({"type": "ink"})), 400, SCHEMA, "ink"),
    ("schema that cannot be kept to", plain(response_format=UNKEPT), 400, SCHEMA, "not"),
    ("schema that nothing follows", plain(response_format=schema(ENDLESS)), 400, None, "no answer"),
    ("schema of a wrong type", plain(response_format=schema([])), 400, SCHEMA, ""),
    ("schema before its picture", picture(SVG) | {"response_format": UNKEPT}, 400, SCHEMA, "not"),
    ("no such data", picture("data:image/png;base64,"), 400, PART, "image 0"),
    ("wrong base64", picture("data:image/png;base64,@@@@"), 400, PART, "image 0"),
    ("data URI without a comma", picture("data:image/png;base64"), 400, "messages[0]", "image 0"),
    ("local file", picture("file:///etc/hostname"), 400, PART, "image 0"),
    ("plain path", picture("/etc/hostname"), 400, PART, "image 0"),
    ("url of a wrong type", picture(5), 400, PART, ""),
    ("no picture", picture(uri(b"0123456789abcdef")), 400, PART, "image 0"),
    ("svg", picture(SVG), 400, PART, "PNG"),
    ("truncated png", picture(uri(PNG[: len(PNG) * 6 // 10])), 400, PART, "image 0"),
    ("truncated jpeg", picture(uri(JPEG[: len(JPEG) * 6 // 10])), 400, "messages[0]", "image 0"),
    ("extreme aspect", picture(data_uri(noise(3, (1093, 5)))), 400, PART, "image 0"),
    ("side too long", picture(data_uri(noise(4, (20000, 120)))), 413, "messages[0]", "16384"),
]  # fmt: skip


def check_error(response: httpx.Response, status: int, param: str | None, word: str) -> None:
    assert response.status_code == status, response.text
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert error["message"]
    assert word in error["message"]
    assert error["type"] == "invalid_request_error"
    assert error["code"]
    if param is not None:
        assert error["param"] is not None
        assert error["param"].startswith(param)
    assert not re.search(r"0x[0-9a-f]{6}|object at|Traceback|/usr/|\.py", response.text)


@pytest.mark.parametrize(("what", "body", "status", "param", "word"), BAD, ids=[b[0] for b in BAD])
def test_bad_input_is_a_named_4xx(
    demo: Server, what: str, body: dict[str, Any], status: int, param: str | None, word: str
) -> None:
    encoded_before = demo.metric("fovea_images_encoded_total")
    for streamed in (False, True):
        full = {"model": demo.model} | ({"stream": streamed} if "stream" not in body else {}) | body
        check_error(demo.post(full), status, param, word)
    assert demo.metric("fovea_images_encoded_total") == encoded_before


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"a":' * 5000, b'{"messages": NaN}'],
)
def test_a_body_that_is_no_json_object_is_400(demo: Server, body: bytes) -> None:
    response = httpx.post(f"{demo.url}/v1/chat/completions", content=body)
    check_error(response, 400, None, "")


def test_a_wrong_image_among_good_ones_is_named_by_its_index(demo: Server) -> None:
    parts = [
        image_part(draw_shape("red", "circle")),
        {"type": "image_url", "image_url": {"url": uri(JPEG[:300])}},
        image_part(draw_shape("blue", "square", (99, 131))),
    ]
    response = demo.post({"model": demo.model} | user(parts))
    check_error(response, 400, "messages[0].content[1]", "image 1")
    error = response.json()["error"]
    assert error["image_index"] == 1
    assert error["stage"] in {"header", "decode"}


def test_too_many_images_are_refused_with_both_numbers(demo: Server) -> None:
    parts = [image_part(noise(seed, (30 + seed, 40))) for seed in range(65)]
    response = demo.post({"model": demo.model} | user(parts))
    check_error(response, 400, "messages", "65")
    assert "64" in response.json()["error"]["message"]


def test_an_image_of_too_many_bytes_is_413_with_both_numbers(demo: Server) -> None:
    data = PNG + bytes(21 * 1024 * 1024)
    response = demo.post({"model": demo.model} | picture(uri(data)))
    check_error(response, 413, "messages[0].content[0]", "20971520")


def test_a_bomb_of_pixels_is_refused_from_its_header(demo: Server) -> None:
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (16000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    crc = zlib.crc32(header[12:]).to_bytes(4, "big")
    response = demo.post({"model": demo.model} | picture(uri(header + crc + PNG[33:])))
    check_error(response, 413, "messages[0].content[0]", "64000000")


def test_a_prompt_longer_than_the_context_is_400_with_both_numbers(demo: Server) -> None:
    response = demo.post({"model": demo.model} | user("red circle " * 2000))
    check_error(response, 400, "messages", "2048")
    assert response.json()["error"]["code"] == "context_length_exceeded"


@pytest.mark.parametrize("max_tokens", [2020, 2048, 2**40])
def test_an_answer_that_cannot_fit_is_400_before_image_work(demo: Server, max_tokens: int) -> None:
    looked_up = demo.metric("fovea_embedding_lookups_total")
    body = {"model": demo.model, "max_tokens": max_tokens} | picture(uri(PNG))
    response = demo.post(body)
    check_error(response, 400, "messages", "2048")
    assert f"up to {min(max_tokens, 2**31 - 2)} are asked" in response.json()["error"]["message"]
    assert response.json()["error"]["code"] == "context_length_exceeded"
    assert demo.metric("fovea_embedding_lookups_total") == looked_up
    body["max_tokens"] = 4
    assert demo.post(body).status_code == 200
    assert demo.metric("fovea_embedding_lookups_total") == looked_up + 1


def test_null_means_absent(demo: Server) -> None:
    optional = (
        "temperature", "top_p", "top_k", "seed", "max_tokens", "max_completion_tokens", "stop",
        "stream", "stream_options", "n", "logprobs", "tools", "response_format", "user",
    )  # fmt: skip
    body = {"model": demo.model} | plain(**dict.fromkeys(optional))
    assert demo.post(body).status_code == 200


@pytest.mark.parametrize("offer", ["h2c", "H2C"])
def test_an_offer_of_http_2_does_not_cost_the_body(demo: Server, offer: str) -> None:
    headers = {"connection": "Upgrade, HTTP2-Settings", "upgrade": offer, "http2-settings": "AAMA"}
    response = httpx.post(f"{demo.url}/v1/chat/completions", content=b"{}", headers=headers)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "model"


def test_the_official_client_raises_its_own_exceptions(demo: Server) -> None:
    create = demo.client.chat.completions.create
    with pytest.raises(openai.NotFoundError):
        create(model="other", messages=[{"role": "user", "content": "hello"}])
    with pytest.raises(openai.BadRequestError) as caught:
        create(model=demo.model, messages=[])
    assert caught.value.param == "messages"
    assert caught.value.code


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/v1/chat/completions", 405), ("GET", "/nothing", 404), ("POST", "/v1/models", 405)],
)
def test_unknown_routes_and_methods_have_openai_bodies(
    demo: Server, method: str, path: str, status: int
) -> None:
    check_error(httpx.request(method, demo.url + path), status, None, "")


def test_request_ids_are_taken_or_made(demo: Server) -> None:
    given = httpx.get(f"{demo.url}/health", headers={"x-request-id": "mine-7"})
    assert given.headers["x-request-id"] == "mine-7"
    odd = httpx.get(f"{demo.url}/health", headers={"x-request-id": "a b\tc<script>"})
    made = odd.headers["x-request-id"]
    assert re.fullmatch(r"[0-9a-f]{24}", made)
    answer = demo.post({"model": demo.model} | plain())
    assert answer.json()["id"] not in {"", answer.headers["x-request-id"]}
