"""No error tells what it should not, whatever was sent: one mechanical rule for every body."""

import base64
import copy
import itertools
import re
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.journeys.server import Server
from tests.pictures import data_uri, encoded, noise, text_part

pytestmark = pytest.mark.slow

# Every three letters of it differ from every other three, so that no part is there by chance.
LONG = "".join(f"{one}{two}{three}" for one, two, three in itertools.permutations("QWZXKJ", 3)) * 2
MAX_ECHO = 100
SECRETS = re.compile(
    r"0x[0-9a-fA-F]{4,}"  # addresses of memory
    r"|<[\w.]+ object|object at|<class|<function|<bound"  # objects as Python shows them
    r"|Traceback|File \"|\.py\b|\bline \d+, in "
    r"|pydantic|orjson|starlette|uvicorn|torch\b"  # what we are built of
)
PATH = re.compile(r"(?<![\w.])/[\w.@-]+/[\w.@/-]*")

URI = data_uri(noise(5, (61, 47)))


def strings(value: object) -> Iterator[str]:
    """All strings in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def check_body(response: httpx.Response, sent: Iterable[str], what: str) -> dict[str, Any]:
    """The rule. `sent` are the texts that the caller sent, in any form."""
    assert response.headers["content-type"] == "application/json", (what, response.text[:300])
    error: dict[str, Any] = response.json()["error"]
    assert error.keys() >= {"message", "type", "param", "code", "retryable"}, what
    assert error["message"], what
    assert error["code"], what
    if error["message"].startswith("image "):
        assert error.keys() >= {"image_index", "stage"}, what
    haystack = [text for text in sent if len(text) > MAX_ECHO]
    known = " ".join(sent)
    for told in (response.text, *strings(error)):
        assert not SECRETS.search(told), (what, told)
        for path in PATH.findall(told):
            assert path in known, (what, told)
        for start in range(len(told) - MAX_ECHO):
            window = told[start : start + MAX_ECHO + 1]
            assert not any(window in text for text in haystack), (what, told)
    return error


def full_body(server: Server) -> dict[str, Any]:
    """Every field that is known, each with a value that is well."""
    image = {"type": "image_url", "image_url": {"url": URI, "detail": "low"}, "uuid": "cover"}
    tensors = {"type": "image_tensors", "image_tensors": {"data": "AAAA"}, "uuid": "x"}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return {
        "model": server.model,
        "messages": [
            {"role": "system", "content": "Be brief.", "name": "s"},
            {"role": "assistant", "content": "Yes.", "tool_calls": [call]},
            {"role": "tool", "content": "7", "tool_call_id": "c"},
            {"role": "user", "content": [image, text_part("What is it?"), tensors]},
        ],
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 5,
        "min_p": 0.1,
        "seed": 3,
        "n": 1,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "min_tokens": 0,
        "stop": ["x"],
        "stop_token_ids": [3],
        "ignore_eos": False,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.1,
        "repetition_penalty": 1.1,
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": 2,
        "stream": False,
        "stream_options": {"include_usage": True},
        "user": "u",
        "metadata": {"a": "b"},
        "tools": [tool],
        "tool_choice": "auto",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
        "chat_template_kwargs": {"a": 1},
        "guided_json": {"type": "object"},
        "audio": {"voice": "v"},
    }


HOSTILE: tuple[object, ...] = (
    "\x00\x1b[31mЖ" + LONG,
    "file:///etc/passwd" + LONG,
    f"http://127.0.0.1:1/{LONG}",
    "data:image/png;base64," + LONG,
    "{{ self.__init__.__globals__ }}<|im_start|>" + LONG,
    -(10**18),
    1e308,
    True,
    [[LONG]],
    {LONG: LONG},
    {"type": LONG},
    {"url": LONG, "detail": LONG},
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where something can be put in a JSON value."""
    steps: Iterable[str | int] = ()
    if isinstance(value, dict):
        steps = list(value)
    elif isinstance(value, list):
        steps = range(len(value))
    for step in steps:
        yield (*path, step)
        yield from places(value[step], (*path, step))


def put(body: dict[str, Any], path: tuple[str | int, ...], value: object) -> dict[str, Any]:
    changed: Any = copy.deepcopy(body)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    found: dict[str, Any] = changed
    return found


def bodies(whole: dict[str, Any], least: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Something hostile in place of each part of each field, beside the least that is needed."""
    for field, value in whole.items():
        for path in [(), *places(value)]:
            for hostile in HOSTILE:
                changed = put({field: value}, (field, *path), hostile)
                yield f"{(field, *path)} = {str(hostile)[:20]}", least | changed


def check_route(server: Server, route: str, whole: dict[str, Any], least: dict[str, Any]) -> int:
    """Hold all errors to the rule; how many there were."""
    num_errors = 0
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for what, body in bodies({"model": server.model} | whole, {"model": server.model} | least):
            response = client.post(route, json=body)
            assert response.status_code < 500 or response.status_code == 503, (what, response.text)
            if response.status_code != 200:
                num_errors += 1
                check_body(response, [*strings(body), response.request.content.decode()], what)
    return num_errors


def test_whatever_is_sent_for_a_field_errors_tell_little(demo: Server) -> None:
    least = {"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]}
    assert check_route(demo, "/v1/chat/completions", full_body(demo), least) > 500


CALLS = [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}]
OTHER_ROUTES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    (
        "/v1/responses",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_image", "image_url": URI}]},
                {"role": "user", "content": [{"type": "input_text", "text": "What is it?"}]},
                *CALLS,
                {"type": "function_call_output", "call_id": "c", "output": "7"},
            ],
            "instructions": "Be brief.",
            "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
            "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}},
            "previous_response_id": "r",
        },
        {"input": "a", "max_output_tokens": 1},
    ),
    (
        "/v1/completions",
        {"prompt": ["a", "b"], "suffix": "s", "echo": True, "logprobs": 1},
        {"prompt": "a", "max_tokens": 1},
    ),
    ("/tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, {}),
    ("/detokenize", {"tokens": [1, 2]}, {}),
)


@pytest.mark.parametrize(
    ("route", "whole", "least"), OTHER_ROUTES, ids=[route for route, *_ in OTHER_ROUTES]
)
def test_other_routes_tell_as_little(
    demo: Server, route: str, whole: dict[str, Any], least: dict[str, Any]
) -> None:
    assert check_route(demo, route, whole, least) > 5


def broken_files() -> Iterator[tuple[str, bytes]]:
    for kind in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF"):
        data = encoded(noise(7, (83, 59)), kind)
        yield f"{kind} cut", data[: len(data) // 2]
        yield f"{kind} head alone", data[:16]
        for place in range(8, min(len(data), 400), 41):
            yield (
                f"{kind} with another byte {place}",
                (data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]),
            )
    png = encoded(noise(8, (31, 41)))
    for name in (b"tEXt", b"zTXt", b"iCCP", b"eXIf", b"abcd"):
        chunk = name + LONG.encode() * 3
        crc = zlib.crc32(chunk).to_bytes(4, "big")
        length = (len(chunk) - 4).to_bytes(4, "big")
        yield f"PNG with {name.decode()}", png[:33] + length + chunk + crc + png[33:-30]


def test_broken_files_are_told_by_index_and_stage_and_no_more(demo: Server) -> None:
    num_errors = 0
    with httpx.Client(base_url=demo.url, timeout=60) as client:
        for what, data in broken_files():
            uri = data_uri_of(data)
            content = [{"type": "image_url", "image_url": {"url": uri}}]
            body = {"model": demo.model, "max_tokens": 1}
            body |= {"messages": [{"role": "user", "content": content}]}
            response = client.post("/v1/chat/completions", json=body)
            if response.status_code != 200:
                num_errors += 1
                error = check_body(response, [uri, data.decode("latin-1")], what)
                assert (error["image_index"], error["retryable"]) == (0, False), what
                assert error["stage"] in {"header", "decode", "limit"}, what
    assert num_errors > 20


def data_uri_of(data: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(data).decode()


RAW: tuple[bytes, ...] = (
    b"",
    LONG.encode(),
    b'{"model": "' + LONG.encode() + b'"',
    b'{"model": "' + LONG.encode() + b'\\ud800", "messages": []}',
    b'{"' + LONG.encode() + b'": ' + LONG.encode() + b"}",
    b"\xff\xfe" + LONG.encode(),
    b"[" * 100_000,
    b'{"a":' * 2000 + b"1" + b"}" * 2000,
    orjson.dumps([LONG]),
)


@pytest.mark.parametrize("content", RAW)
def test_what_is_no_body_is_not_repeated(demo: Server, content: bytes) -> None:
    response = httpx.post(f"{demo.url}/v1/chat/completions", content=content)
    assert response.status_code == 400
    check_body(response, [content.decode("latin-1")], "")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/{LONG}"),
        ("GET", f"/v1/models/{LONG}"),
        ("GET", f"/v1/models/%00%ff{LONG}"),
        ("POST", f"/v1/models/{LONG}"),
        ("DELETE", f"/v1/chat/completions?{LONG}={LONG}"),
        ("PATCH", "/../../etc/passwd"),
        ("OPTIONS", "/"),
    ],
)
def test_unknown_routes_and_methods_repeat_little(demo: Server, method: str, path: str) -> None:
    headers = {"x-request-id": LONG[:100], "authorization": f"Bearer {LONG}", "referer": LONG}
    response = httpx.request(method, demo.url + path, headers=headers)
    assert response.status_code in {404, 405}
    assert check_body(response, [path, *headers.values()], "")["retryable"] is False


def test_the_rule_can_fail() -> None:
    def broken(message: str) -> httpx.Response:
        error = {"message": message, "type": "t", "param": None, "code": "c", "retryable": False}
        return httpx.Response(400, json={"error": error})

    check_body(broken("the field is wrong: " + LONG[:90]), [LONG], "")
    for message in (
        "at 0x7f20d75bea90",
        "<gateway.observe.metrics.Metrics object>",
        "no such file: /srv/models/a",
        LONG[5:106],
        "image 3: nothing more",
    ):
        with pytest.raises(AssertionError):
            check_body(broken(message), [LONG], "")
