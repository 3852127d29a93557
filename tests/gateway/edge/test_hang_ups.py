"""However a connection ends, nobody who asked is left without an answer that can be read."""

import asyncio
import random
import shutil
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.gateway.door import MEBIBYTE, STALL_SECONDS, Door, bodies_of, read_all, serving

pytestmark = pytest.mark.slow

GET = b"GET /x HTTP/1.1\r\nhost: x\r\n\r\n"
UPLOAD_BYTES = 20 * MEBIBYTE
FETCH = """
const body = require("fs").readFileSync(process.argv[2]);
fetch(process.argv[1], {method: "POST", body}).then(
    async (answer) => console.log(answer.status, await answer.text()),
    (error) => console.log(error.cause ?? error),
);
"""
# As Node's own module asked up to its version 18: a connection for each request.
REQUEST = """
const body = require("fs").readFileSync(process.argv[2]);
const headers = {connection: "close"};
const asked = require("http").request(process.argv[1], {method: "POST", headers}, (answer) => {
    let text = "";
    answer.on("data", (part) => { text += part; });
    answer.on("end", () => console.log(answer.statusCode, text));
});
asked.on("error", (error) => console.log(error));
asked.end(body);
"""


@pytest.fixture(scope="module", name="door")
def open_door() -> Iterator[Door]:
    with serving() as door:
        yield door


@pytest.fixture(scope="module")
def upload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("upload") / "body"
    path.write_bytes(bytes(UPLOAD_BYTES))
    return path


def by_httpx(url: str, upload: Path) -> str:
    answer = httpx.post(url, content=upload.read_bytes(), timeout=20)
    return f"{answer.status_code} {answer.text}"


def by_old_http(url: str, upload: Path) -> str:
    host, port = url.split("/")[2].split(":")
    path = url.split(port)[1]
    with socket.create_connection((host, int(port)), 20) as connection:
        head = f"POST {path} HTTP/1.0\r\ncontent-length: {UPLOAD_BYTES}\r\n\r\n"
        connection.sendall(head.encode() + upload.read_bytes())
        answer = read_all(connection)
    status, body = answer.split(b" ")[1], answer.partition(b"\r\n\r\n")[2]
    return f"{status.decode()} {body.decode()}"


def by_curl(url: str, upload: Path) -> str:
    more = ("--data-binary", f"@{upload}", "-w", "%{stderr}%{http_code} ")
    return _run("curl", "-sS", *more, url)


def by_fetch(url: str, upload: Path) -> str:
    return _run("node", "-e", FETCH, url, str(upload))


def by_request(url: str, upload: Path) -> str:
    return _run("node", "-e", REQUEST, url, str(upload))


def _run(*command: str) -> str:
    if not shutil.which(command[0]):
        pytest.skip(f"there is no {command[0]}")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stderr + done.stdout).strip()


@pytest.mark.parametrize("client", [by_httpx, by_old_http, by_curl, by_fetch, by_request])
@pytest.mark.parametrize("path", ["/early", "/early/last"])
def test_who_sends_a_body_that_nobody_wants_reads_why(
    door: Door, upload: Path, client: Callable[[str, Path], str], path: str
) -> None:
    url = "http://{}:{}{}".format(*door.address, path)
    assert [client(url, upload) for _ in range(3)] == [f'200 {{"path":"{path}"}}'] * 3
    door.until(lambda: door.num_connections == 0)


def test_a_body_that_nobody_wants_may_come_slowly_but_not_for_ever() -> None:
    with serving(body_seconds=3.0) as door, door.connect() as connection:
        connection.sendall(b"POST /early/last HTTP/1.1\r\ncontent-length: 999999\r\n\r\n")
        begun = time.monotonic()
        for _ in range(8):
            connection.sendall(bytes(100))
            time.sleep(0.3)
        assert bodies_of(read_all(connection)) == [{"path": "/early/last"}]
        with pytest.raises(ConnectionError):  # noqa: PT012 - which of these, nobody knows
            while time.monotonic() - begun < 8:
                connection.sendall(bytes(100))
                time.sleep(0.05)
        assert 2.5 < time.monotonic() - begun < 6


def test_who_is_silent_at_first_may_ask_later_than_a_head_may_take() -> None:
    with serving(head_seconds=0.2, idle_seconds=5.0) as door, door.connect() as connection:
        time.sleep(0.5)
        connection.sendall(GET)
        assert bodies_of(connection.recv(1000))


def test_a_request_that_comes_while_the_loop_is_busy_is_in_time() -> None:
    with (
        serving(idle_seconds=STALL_SECONDS * 0.7) as door,
        door.connect() as idle,
        door.connect() as busy,
    ):
        idle.sendall(GET)
        assert bodies_of(idle.recv(1000))
        time.sleep(STALL_SECONDS * 0.4)
        busy.sendall(b"GET /stall HTTP/1.1\r\n\r\n")
        time.sleep(STALL_SECONDS * 0.2)
        idle.sendall(GET)  # in time, but the loop sees it when the time is over
        assert bodies_of(idle.recv(1000))


def test_a_request_that_comes_as_the_server_ends_is_answered_as_the_last() -> None:
    with serving() as door, door.connect() as asking, door.connect() as idle:
        for connection in (asking, idle):
            connection.sendall(GET)
            assert bodies_of(connection.recv(1000))
        door.end()
        time.sleep(STALL_SECONDS * 0.3)
        asking.sendall(GET)
        answer = read_all(asking)
        assert bodies_of(answer)
        assert b"connection: close" in answer
        assert read_all(idle) == b""


async def _ask_at(address: tuple[str, int], seconds: float, num_rounds: int) -> Counter[str]:
    """Statuses of requests that come just as the server may end their connection."""
    seen: Counter[str] = Counter()
    reader, writer = await asyncio.open_connection(*address)
    for _ in range(num_rounds):
        await asyncio.sleep(seconds + random.uniform(-0.01, 0.004))
        try:
            writer.write(GET)
            status = (await reader.readuntil(b"\r\n")).split(b" ")[1].decode()
            length = (await reader.readuntil(b"\r\n\r\n")).lower().partition(b"content-length: ")
            await reader.readexactly(int(length[2].split(b"\r\n")[0]))
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            status = type(error).__name__
        seen[status] += 1
        if status != "200":
            writer.close()
            reader, writer = await asyncio.open_connection(*address)
    writer.close()
    return seen


def test_requests_at_the_very_end_of_idleness_are_all_answered() -> None:
    async def crowd() -> Counter[str]:
        asking = (_ask_at(door.address, 0.1, 20) for _ in range(40))
        return sum(await asyncio.gather(*asking), Counter[str]())

    with serving(idle_seconds=0.1) as door:
        seen = asyncio.run(crowd())
    assert seen.total() == 800
    assert set(seen) == {"200", "408"}, seen


def test_many_short_connections_of_every_kind_are_all_answered() -> None:
    kinds = {
        GET: 1,
        GET.replace(b"1.1", b"1.0"): 1,
        GET * 9 + GET.replace(b"host: x", b"connection: close"): 10,
        b"POST /early HTTP/1.0\r\ncontent-length: 300000\r\n\r\n" + bytes(300000): 1,
        b"POST /early/last HTTP/1.1\r\ncontent-length: 300000\r\n\r\n" + bytes(300000): 1,
        b"GET / HTTP/1.1\r\nlong: " + b"v" * 300000: 1,
        b"nonsense\r\n\r\n" + bytes(300000): 1,
    }

    async def ask(data: bytes, num_answers: int) -> int:
        reader, writer = await asyncio.open_connection(*door.address)
        writer.write(data)
        await writer.drain()
        found = 0
        while found < num_answers:
            found += (await reader.readuntil(b"HTTP/1.1 "))[-9:] == b"HTTP/1.1 "
        writer.close()
        return found

    async def crowd() -> int:
        asking = [ask(*kind) for kind in kinds.items() for _ in range(30)]
        random.shuffle(asking)
        done = 0
        for at in range(0, len(asking), 70):
            done += sum(await asyncio.gather(*asking[at : at + 70]))
        return done

    with serving() as door:
        assert asyncio.run(crowd()) == 30 * sum(kinds.values())
        door.until(lambda: door.num_connections == 0)
