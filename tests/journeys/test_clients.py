"""Clients of every bad kind at once: others do not notice, and nothing of them stays."""

import contextlib
import resource
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

from tests.journeys.server import Server, running
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

CHAT = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
MANY_CONNECTIONS = 10_000


@pytest.fixture(scope="module")
def strict() -> Iterator[Server]:
    """A server that has little patience with clients."""
    with running(
        head_seconds=1,
        body_seconds="1.5",
        idle_seconds=3,
        stalled_seconds="1.5",
        media_allow_private=1,
    ) as server:
        yield server


def connect(server: Server, receive_bytes: int = 0) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(20)
    connection.connect((host, int(port)))
    return connection


def chat(body: dict[str, Any], *lines: bytes) -> bytes:
    data = orjson.dumps(body)
    head = [CHAT.rstrip(), b"content-length: %d" % len(data), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + data


def honest(server: Server) -> dict[str, Any]:
    parts = [image_part(draw_shape("red", "circle", (91, 77))), text_part("What is it?")]
    messages = [{"role": "user", "content": parts}]
    return {"model": server.model, "messages": messages, "max_tokens": 8, "temperature": 0}


def long_stream(server: Server) -> dict[str, Any]:
    """A stream of many megabytes, which no buffer of the system takes in."""
    more = {"stream": True, "n": 8, "logprobs": True, "top_logprobs": 20, "ignore_eos": True}
    return honest(server) | more | {"max_tokens": 1900}


def answer_of(server: Server) -> str:
    response = server.post(honest(server))
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def num_files(server: Server) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


def resident_bytes(server: Server) -> int:
    fields = Path(f"/proc/{server.process.pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


def all_given_back(server: Server) -> None:
    server.wait_for("fovea_connections", 1, seconds=20)  # the one that asks
    server.wait_for("fovea_requests_running", 0)
    server.wait_for("fovea_worker_running", 0)
    server.wait_for("fovea_worker_waiting", 0)
    server.wait_for("fovea_kv_used_tokens", 0)
    server.wait_for("fovea_arena_used_bytes", 0)


def half_a_head(server: Server) -> bytes:
    return CHAT + b"x-slow: "


def half_a_body(server: Server) -> bytes:
    return chat(honest(server))[:-40]


def half_a_chunk(server: Server) -> bytes:
    return CHAT + b"transfer-encoding: chunked\r\n\r\n400\r\n{"


def no_request(server: Server) -> bytes:
    return b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500)


def too_large_a_head(server: Server) -> bytes:
    return CHAT + b"x-large: " + b"v" * 100_000


def nothing(server: Server) -> bytes:
    return b""


def several_at_once(server: Server) -> bytes:
    return chat(honest(server)) * 3


def an_unread_stream(server: Server) -> bytes:
    return chat(long_stream(server))


CROWD: tuple[tuple[Callable[[Server], bytes], int], ...] = (
    (half_a_head, 60),
    (half_a_body, 60),
    (half_a_chunk, 20),
    (no_request, 60),
    (too_large_a_head, 60),
    (nothing, 60),
    (several_at_once, 3),
    (an_unread_stream, 1),
)


def test_a_crowd_of_bad_clients_is_felt_by_nobody_and_leaves_nothing(strict: Server) -> None:
    expected = answer_of(strict)
    all_given_back(strict)
    files, memory = num_files(strict), resident_bytes(strict)
    with contextlib.ExitStack() as crowd:
        for kind, number in CROWD:
            for _ in range(number):
                connection = crowd.enter_context(connect(strict, receive_bytes=2048))
                with contextlib.suppress(ConnectionError):
                    connection.sendall(kind(strict))
        for _ in range(5):
            assert answer_of(strict) == expected
        # None of them has hung up: it is the server that ends them all.
        all_given_back(strict)
        assert num_files(strict) <= files + 2
    assert answer_of(strict) == expected
    assert strict.metric("fovea_connections_cut_total", reason="stalled") >= 1
    assert strict.metric("fovea_requests_total", code="body_timeout") >= 80
    assert strict.metric("fovea_requests_total", code="head_timeout") >= 60
    assert strict.metric("fovea_requests_total", code="head_too_large") >= 60
    assert strict.metric("fovea_requests_total", code="invalid_http") >= 60
    assert resident_bytes(strict) - memory < 100 << 20


def test_ten_thousand_idle_connections_are_felt_by_nobody() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    number = min(MANY_CONNECTIONS, hard * 3 // 4 - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with running(head_seconds=120, idle_seconds=120) as server, contextlib.ExitStack() as crowd:
            expected = answer_of(server)
            begun = time.monotonic()
            answer_of(server)
            alone = time.monotonic() - begun
            memory = resident_bytes(server)
            for index in range(number):
                connection = crowd.enter_context(connect(server))
                if index % 10 == 0:  # some have asked before
                    connection.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            server.wait_for("fovea_connections", number + 1, seconds=30)
            begun = time.monotonic()
            assert answer_of(server) == expected
            assert time.monotonic() - begun < 10 * alone + 1
            assert resident_bytes(server) - memory < number * 32 * 1024
            assert httpx.get(f"{server.url}/ready").status_code == 200
            crowd.close()
            all_given_back(server)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_pipelined_and_chunked_requests_are_answered_like_others(strict: Server) -> None:
    expected = answer_of(strict)
    data = orjson.dumps(honest(strict))
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(data[at : at + 100]), data[at : at + 100])
        for at in range(0, len(data), 100)
    )
    chunked = CHAT + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n"
    last = chat(honest(strict), b"connection: close")
    with connect(strict) as connection:
        connection.sendall(chat(honest(strict)) + chunked + last)
        received = _until_closed(connection)
    answers = received.split(b"HTTP/1.1 200 OK")[1:]
    texts = [
        orjson.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"]
        for answer in answers
    ]
    assert texts == [expected] * 3


def test_who_leaves_while_an_image_is_fetched_frees_the_request(strict: Server) -> None:
    """The host takes the connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as host:
        host.settimeout(10)
        url = f"http://127.0.0.1:{host.getsockname()[1]}/x.png"
        part = {"type": "image_url", "image_url": {"url": url}}
        body = honest(strict) | {"messages": [{"role": "user", "content": [part]}]}
        with connect(strict) as connection:
            connection.sendall(chat(body))
            fetching, _ = host.accept()
            with fetching:
                assert fetching.recv(1000)
                connection.close()
                left_at = time.monotonic()
                assert fetching.recv(1000) == b""  # the fetch is cancelled
                all_given_back(strict)
                assert time.monotonic() - left_at < 2


def test_two_live_requests_of_one_id_are_both_answered(strict: Server) -> None:
    body = honest(strict) | {"max_tokens": 200, "ignore_eos": True}
    with connect(strict) as one, connect(strict) as two:
        for connection in (one, two):
            connection.sendall(chat(body, b"x-request-id: mine", b"connection: close"))
        answers = [_until_closed(connection) for connection in (one, two)]
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    first, second = (orjson.loads(answer.partition(b"\r\n\r\n")[2]) for answer in answers)
    assert first["choices"] == second["choices"]
    assert first["id"] != second["id"]


def test_an_id_of_a_megabyte_is_refused(strict: Server) -> None:
    with connect(strict) as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(chat(honest(strict), b"x-request-id: " + b"i" * (1 << 20)))
        assert b"head_too_large" in _until_closed(connection)


def _until_closed(connection: socket.socket) -> bytes:
    received = b""
    with contextlib.suppress(ConnectionError):
        while chunk := connection.recv(100_000):
            received += chunk
    return received


def test_who_leaves_with_requests_in_line_frees_them(strict: Server) -> None:
    waiting = long_stream(strict) | {"n": 1, "stream": False, "logprobs": False, "top_logprobs": 0}
    before = strict.metric("fovea_requests_total")
    with connect(strict) as connection:
        connection.sendall(chat(waiting) * 4)
        strict.wait_for("fovea_worker_running", 1)
    all_given_back(strict)
    left = strict.metric("fovea_requests_total") - before
    assert left == 1  # those in line never began
