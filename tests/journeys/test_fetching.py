"""Images by their address: where they may come from, and where nothing may be asked."""

import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image

from tests.journeys.server import Server, running
from tests.pictures import data_uri, draw_shape, encoded, text_part

pytestmark = pytest.mark.slow

SLOW_SECONDS = 2.0


class _Host(ThreadingHTTPServer):
    """A host on loopback that counts the connections to it."""

    num_connections = 0
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Pictures)

    def get_request(self) -> Any:
        self.num_connections += 1
        return super().get_request()


class _Pictures(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("location", "/one.jpg")
            self.end_headers()
        elif self.path in ("/one.jpg", "/slow.jpg"):
            time.sleep(SLOW_SECONDS * (self.path == "/slow.jpg"))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(encoded(draw_shape("red", "circle"), "JPEG"))
        else:
            self.send_error(404)

    def log_request(self, *arguments: object) -> None:
        """Stay silent."""


@pytest.fixture
def host() -> Iterator[_Host]:
    with _Host() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("media")
    (folder / "square.png").write_bytes(encoded(draw_shape("blue", "square", (140, 110))))
    return folder


@pytest.fixture(scope="module")
def trusting(folder: Path) -> Iterator[Server]:
    """A gateway that fetches from everywhere and reads the folder."""
    with running(media_allow_private=1, media_folder=folder) as server:
        yield server


def ask(server: Server, url: str) -> httpx.Response:
    content = [{"type": "image_url", "image_url": {"url": url}}, text_part("What shape is this?")]
    return server.post({"model": server.model, "messages": [{"role": "user", "content": content}]})


def answer(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text = response.json()["choices"][0]["message"]["content"]
    assert isinstance(text, str)
    return text


def refusal(response: httpx.Response) -> str:
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["image_index"], error["stage"]) == (0, "fetch")
    assert isinstance(error["code"], str)
    return error["code"]


@pytest.mark.parametrize("path", ["/one.jpg", "/moved"])
def test_an_image_is_fetched_from_its_address(trusting: Server, host: _Host, path: str) -> None:
    assert answer(ask(trusting, f"http://127.0.0.1:{host.server_port}{path}")) == "circle"


def test_a_missing_remote_image_is_the_callers_error(trusting: Server, host: _Host) -> None:
    response = ask(trusting, f"http://127.0.0.1:{host.server_port}/none.png")
    assert refusal(response) == "fetch_status"
    assert "404" in response.json()["error"]["message"]


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", "127.1", "0", "[::ffff:127.0.0.1]"])
def test_nothing_on_this_machine_is_connected_to(
    demo: Server, trusting: Server, host: _Host, name: str
) -> None:
    url = f"http://{name}:{host.server_port}/one.jpg"
    assert refusal(ask(demo, url)) == "address_forbidden"
    assert host.num_connections == 0
    assert answer(ask(trusting, url)) == "circle"  # there it was to be had
    assert host.num_connections == 1


def test_metadata_of_a_cloud_is_not_asked_for(demo: Server) -> None:
    for url in ("http://169.254.169.254/latest", "http://[fd00:ec2::254]/latest"):
        assert refusal(ask(demo, url)) == "address_forbidden"


def test_an_address_in_a_text_is_only_text(trusting: Server, host: _Host) -> None:
    content = f"![](http://127.0.0.1:{host.server_port}/one.jpg) What shape is this?"
    body = {"model": trusting.model, "messages": [{"role": "user", "content": content}]}
    answer(trusting.post(body))
    assert host.num_connections == 0


def test_a_file_is_read_only_below_the_opened_folder(
    demo: Server, trusting: Server, folder: Path
) -> None:
    assert answer(ask(trusting, f"file://{folder}/square.png")) == "square"
    assert refusal(ask(trusting, "file:///etc/hostname")) == "file_unavailable"
    assert refusal(ask(demo, f"file://{folder}/square.png")) == "unsupported_scheme"


def test_a_name_on_its_way_does_not_undo_what_was_shown_under_it_meanwhile(
    trusting: Server, host: _Host
) -> None:
    def named(picture: Image.Image | None) -> dict[str, Any]:
        url = None if picture is None else {"url": data_uri(picture)}
        return {"type": "image_url", "image_url": url, "uuid": "cover"}

    def ask_colour(*parts: dict[str, Any]) -> str:
        content = [*parts, text_part("What colour is this?")]
        message = {"role": "user", "content": content}
        return answer(trusting.post({"model": trusting.model, "messages": [message]}))

    red, blue = (draw_shape(colour, "circle", (147, 134)) for colour in ("red", "blue"))
    slow = f"http://127.0.0.1:{host.server_port}/slow.jpg"
    assert ask_colour(named(red)) == "red"
    with ThreadPoolExecutor(1) as threads:
        held_up = threads.submit(
            ask_colour, named(None), {"type": "image_url", "image_url": {"url": slow}}
        )
        while not host.num_connections:  # by then the name has been looked up
            time.sleep(0.01)
        assert ask_colour(named(blue)) == "blue"
        assert not held_up.done()
    assert held_up.result()
    assert ask_colour(named(None)) == "blue"


def test_slow_hosts_hold_up_nothing_else(trusting: Server, host: _Host) -> None:
    slow = f"http://127.0.0.1:{host.server_port}/slow.jpg"
    waits = []
    with ThreadPoolExecutor(4) as pool, httpx.Client(base_url=trusting.url) as client:
        asked = [pool.submit(ask, trusting, slow) for _ in range(4)]
        while not any(one.done() for one in asked):
            begun = time.monotonic()
            assert client.get("/health").status_code == 200
            waits.append(time.monotonic() - begun)
            time.sleep(0.05)
    assert [answer(one.result()) for one in asked] == ["circle"] * 4
    assert statistics.median(waits) < SLOW_SECONDS / 10


def test_a_name_means_what_the_request_that_came_last_showed(trusting: Server, host: _Host) -> None:
    def show(source: dict[str, str] | None) -> str:
        part = {"type": "image_url", "image_url": source, "uuid": "pet"}
        content = [part, text_part("What colour is this?")]
        messages = [{"role": "user", "content": content}]
        response = trusting.post({"model": trusting.model, "messages": messages})
        return str(response.json()["choices"][0]["message"]["content"])

    with ThreadPoolExecutor() as threads:
        url = f"http://127.0.0.1:{host.server_address[1]}/slow.jpg"
        earlier = threads.submit(show, {"url": url})
        while not host.num_connections:
            time.sleep(0.01)
        assert show({"url": data_uri(draw_shape("blue", "square", (141, 109)))}) == "blue"
        assert not earlier.done()
        assert earlier.result() == "red"
    assert show(None) == "blue"
