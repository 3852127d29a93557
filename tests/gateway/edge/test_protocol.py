"""What clients do at the edge of HTTP: each is answered or cut, and nothing of it stays."""

import concurrent.futures
import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from config.settings import ServerSettings
from gateway.edge.sockets import listen
from tests.gateway.door import (
    FLOOD_BYTES,
    MEBIBYTE,
    Door,
    bodies_of,
    error_of,
    read_all,
    serving,
)

GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
LAST_GET = b"GET /last HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def shared() -> Iterator[Door]:
    """A server whose limits of time no test here waits for."""
    with serving() as door:
        yield door


@pytest.fixture
def door(shared: Door) -> Iterator[Door]:
    """At the end of a test nothing of its connections is left."""
    shared.application.left.clear()
    yield shared
    shared.until(lambda: shared.num_connections == 0)


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\nnonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nname with blanks: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nname: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1e3\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST / HTTP/1.1\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"CONNECT host:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    ],
)
def test_what_is_no_http_is_400_in_openais_form(door: Door, data: bytes) -> None:
    assert error_of(door.ask(data)) == (400, "invalid_http")
    assert bodies_of(door.ask(LAST_GET))


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"u" * 9000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nlong: " + b"v" * 9000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: %d\r\n" % (i, i) for i in range(1200)) + b"\r\n",
        b"GET / HTTP/1.1\r\nendless: " + b"v" * (2 * MEBIBYTE),
        b"GET / HTTP/1.1\r\n" + b"n" * (2 * MEBIBYTE),
        b"GET /" + b"u" * (2 * MEBIBYTE),
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\nt: " + b"v" * (2 * MEBIBYTE),
        b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"t: v\r\n" * 10000,
    ],
    ids=["url", "header", "headers", "endless", "name", "endless url", "trailer", "trailers"],
)
def test_heads_and_trailers_over_the_limit_are_431(door: Door, data: bytes) -> None:
    with door.connect() as connection, concurrent.futures.ThreadPoolExecutor(1) as threads:
        answer = threads.submit(read_all, connection)
        with contextlib.suppress(ConnectionError):  # not all of it is taken in
            connection.sendall(data)
        assert error_of(answer.result()) == (431, "head_too_large")
    if b"chunked" in data:
        door.until(lambda: door.application.left == ["/"])


def test_a_head_just_below_the_limit_is_taken(door: Door) -> None:
    head = b"GET /y HTTP/1.1\r\nconnection: close\r\nlong: " + b"v" * 8000 + b"\r\n\r\n"
    assert bodies_of(door.ask(head))[0]["headers"] == ["connection", "long"]


def test_trailers_are_not_taken_for_headers(door: Door) -> None:
    head = b"POST /y HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    (body,) = bodies_of(door.ask(head + b"3\r\nabc\r\n0\r\nauthorization: Bearer x\r\n\r\n"))
    assert body["num_bytes"] == 3
    assert body["headers"] == ["connection", "transfer-encoding"]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_chunks_of_any_size_make_one_body(door: Door, size: int) -> None:
    data = bytes(200) * 100
    chunks = b"".join(
        b"%x;name=value\r\n%b\r\n" % (len(data[at : at + size]), data[at : at + size])
        for at in range(0, len(data), size)
    )
    head = b"POST /y HTTP/1.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n"
    assert bodies_of(door.ask(head + chunks + b"0\r\n\r\n"))[0]["num_bytes"] == len(data)


@pytest.mark.parametrize("offer", [b"h2c", b"H2C", b"websocket", b"TLS/1.0, IRC/6.9"])
def test_offers_of_other_protocols_do_not_cost_the_body(door: Door, offer: bytes) -> None:
    head = b"POST /y HTTP/1.1\r\nconnection: close, upgrade\r\nupgrade: %b\r\n" % offer
    (body,) = bodies_of(door.ask(head + b"content-length: 3\r\n\r\nabc"))
    assert body["num_bytes"] == 3


def test_requests_that_come_at_once_are_answered_in_order(door: Door) -> None:
    sent = b"".join(
        b"POST /%d HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (i, i) + bytes(i) for i in range(20)
    )
    answers = bodies_of(door.ask(sent + LAST_GET))
    assert [body["path"] for body in answers] == [*(f"/{i}" for i in range(20)), "/last"]
    assert [body["num_bytes"] for body in answers] == [*range(20), 0]


def test_a_head_that_comes_byte_by_byte_is_taken(door: Door) -> None:
    with door.connect() as connection:
        for byte in LAST_GET:
            connection.sendall(bytes([byte]))
        assert bodies_of(read_all(connection))[0]["path"] == "/last"


def test_a_flood_of_requests_behind_an_answer_is_cut(door: Door) -> None:
    answer = door.ask(b"GET /hold HTTP/1.1\r\n\r\n" + GET * 5000)
    assert error_of(answer) == (400, "invalid_http")
    door.until(lambda: door.application.left == ["/hold"])


def test_who_leaves_with_requests_in_line_is_noticed(door: Door) -> None:
    with door.connect() as connection:
        connection.sendall(b"GET /hold HTTP/1.1\r\n\r\n" + GET)
        time.sleep(0.05)
        connection.sendall(GET * 2)
        time.sleep(0.05)
        assert door.application.left == []
    door.until(lambda: door.application.left == ["/hold"])


def test_nonsense_behind_a_request_is_not_answered_into_its_answer(door: Door) -> None:
    with door.connect() as connection:
        connection.sendall(b"GET /begin HTTP/1.1\r\n\r\n")
        answer = b""
        while b"begun" not in answer:
            answer += connection.recv(1000)
        connection.sendall(b"nonsense\r\n\r\n")
        assert b"HTTP/1.1" not in read_all(connection)
    door.until(lambda: door.application.left == ["/begin"])


def test_a_body_that_is_no_body_is_400_and_its_reader_is_told(door: Door) -> None:
    head = b"POST /y HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    assert error_of(door.ask(head + b"zz\r\n")) == (400, "invalid_http")
    door.until(lambda: door.application.left == ["/y"])


def test_nonsense_behind_an_answer_to_half_a_body_is_not_answered(door: Door) -> None:
    head = b"POST /early HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n"
    with door.connect() as connection:
        connection.sendall(head)
        answer = connection.recv(1000)
        connection.sendall(b"zz\r\n")
        answer += read_all(connection)
    assert bodies_of(answer) == [{"path": "/early"}]


def test_the_system_looks_after_peers_that_are_gone(door: Door) -> None:
    """What is accepted inherits it, which is looked at on a connection accepted by hand."""
    with listen(ServerSettings(port=0)) as listener:
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
            assert 0 < accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 120_000


def test_a_connection_over_the_limit_is_told_so_and_does_not_cost_the_others() -> None:
    with serving(max_connections=2) as door, door.connect() as one, door.connect() as two:
        for connection in (one, two):
            connection.sendall(GET)
            assert connection.recv(1000)
        assert error_of(door.ask(b"")) == (503, "too_many_connections")
        one.sendall(LAST_GET)
        assert read_all(one)
        door.until(lambda: door.num_connections == 1)
        assert bodies_of(door.ask(LAST_GET))
        two.sendall(LAST_GET)
        assert bodies_of(read_all(two))


@pytest.mark.slow
def test_a_head_that_does_not_end_is_408_however_it_drips() -> None:
    with serving(head_seconds=0.5) as door, door.connect() as connection:
        begun = time.monotonic()
        connection.sendall(b"GET /")
        connection.settimeout(0.05)
        answer = b""
        while not answer and time.monotonic() - begun < 5:
            connection.sendall(b"x")
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(4096)
        assert error_of(answer) == (408, "head_timeout")
        assert 0.4 < time.monotonic() - begun < 3


@pytest.mark.slow
def test_silence_is_told_of_and_closed() -> None:
    with serving(idle_seconds=0.3) as door:
        begun = time.monotonic()
        assert error_of(door.ask(b"")) == (408, "idle_timeout")
        assert 0.2 < time.monotonic() - begun < 3
        assert error_of(door.ask(b"\r\n" * 10)) == (408, "idle_timeout")
        door.until(lambda: door.num_connections == 0)


@pytest.mark.slow
def test_between_requests_other_limits_hold() -> None:
    with serving(head_seconds=0.3, idle_seconds=1.0) as door, door.connect() as connection:
        connection.sendall(GET)
        assert connection.recv(1000)
        time.sleep(0.6)
        connection.sendall(GET)
        assert connection.recv(1000)
        connection.sendall(b"GET /half")
        assert error_of(read_all(connection)) == (408, "head_timeout")
    with serving(idle_seconds=0.3) as door, door.connect() as connection:
        connection.sendall(GET)
        begun = time.monotonic()
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert error_of(read_all(connection)) == (408, "idle_timeout")
        assert 0.2 < time.monotonic() - begun < 3


@pytest.mark.slow
def test_an_answer_that_takes_long_is_under_no_limit_of_the_clients() -> None:
    with (
        serving(head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2, stalled_seconds=0.2) as door,
        door.connect() as connection,
    ):
        connection.sendall(b"GET /begin HTTP/1.1\r\n\r\n")
        answer = b""
        while not answer.endswith(b"begun\r\n"):
            answer += connection.recv(1000)
        connection.settimeout(1)
        with pytest.raises(TimeoutError):
            connection.recv(1000)


@pytest.mark.slow
def test_a_body_that_nobody_reads_any_more_may_end_but_not_go_on() -> None:
    head = b"POST /early HTTP/1.1\r\ncontent-length: 200000\r\n\r\n"
    with serving(body_seconds=0.5, idle_seconds=2.0) as door:
        with door.connect() as connection:
            connection.sendall(head)
            assert b"200" in connection.recv(1000)
            connection.sendall(bytes(200000))
            connection.sendall(LAST_GET)
            assert bodies_of(read_all(connection))[0]["path"] == "/last"
        with door.connect() as connection:
            begun = time.monotonic()
            connection.sendall(head)
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - begun < 5:
                    connection.sendall(b"x")
                    time.sleep(0.02)
            assert 0.3 < time.monotonic() - begun < 3
        door.until(lambda: door.num_connections == 0)


@pytest.mark.slow
def test_who_does_not_read_is_cut_and_holds_little_meanwhile() -> None:
    with serving(stalled_seconds=0.5) as door, door.connect(receive_bytes=4096) as connection:
        connection.sendall(b"GET /flood HTTP/1.1\r\n\r\n")
        time.sleep(0.3)
        assert door.application.num_flooded < 16 * MEBIBYTE
        door.until(lambda: door.value("fovea_connections_cut_total", reason="stalled") == 1)
        door.until(lambda: door.num_connections == 0)


@pytest.mark.slow
@pytest.mark.parametrize("close", [False, True])
def test_who_reads_slowly_gets_everything(close: bool) -> None:
    with serving(stalled_seconds=0.5) as door, door.connect(receive_bytes=65536) as connection:
        tail = b"connection: close\r\n" if close else b""
        connection.sendall(b"GET /flood HTTP/1.1\r\n" + tail + b"\r\n")
        num_bytes, begun = 0, time.monotonic()
        while num_bytes < FLOOD_BYTES:
            chunk = connection.recv(2 * MEBIBYTE)
            assert chunk, "cut off"
            num_bytes += len(chunk)
            if time.monotonic() - begun < 2.5:
                time.sleep(0.1)
        assert time.monotonic() - begun > 2


@pytest.mark.slow
@pytest.mark.parametrize("close", [False, True])
def test_an_answer_that_is_over_but_not_read_does_not_keep_its_connection(close: bool) -> None:
    """What is left of it is so little that nobody waits for it."""
    tail = b"connection: close\r\n" if close else b""
    with (
        serving(stalled_seconds=0.4, idle_seconds=0.4, send_bytes=4096) as door,
        door.connect(receive_bytes=2048) as connection,
    ):
        connection.sendall(b"GET /some HTTP/1.1\r\n" + tail + b"\r\n")
        door.until(lambda: door.value("fovea_connections_cut_total", reason="stalled") == 1)
        door.until(lambda: door.num_connections == 0)
