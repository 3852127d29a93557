"""The promises of the design, each with its journey."""

import concurrent.futures
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import orjson
import pytest

from tests.journeys.server import Server, refused_start, running
from tests.pictures import draw_shape, image_part, noise, text_part

pytestmark = pytest.mark.slow


def long_body(server: Server, tokens: int = 1500, streamed: bool = True) -> dict[str, Any]:
    """A request that generates for seconds."""
    parts = [image_part(draw_shape("red", "circle")), text_part("Describe the image.")]
    return {
        "model": server.model,
        "messages": [{"role": "user", "content": parts}],
        "stream": streamed,
        "max_tokens": tokens,
        "ignore_eos": True,
    }


def frames(response: httpx.Response) -> Iterator[str]:
    """The data of each frame of a stream."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def streaming(server: Server, body: dict[str, Any]) -> Any:
    return httpx.stream("POST", f"{server.url}/v1/chat/completions", json=body, timeout=60)


def all_given_back(server: Server) -> None:
    """Requests, jobs, KV and arena bytes are all at zero."""
    server.wait_for("fovea_requests_running", 0)
    server.wait_for("fovea_worker_running", 0)
    server.wait_for("fovea_worker_waiting", 0)
    server.wait_for("fovea_kv_used_tokens", 0)
    server.wait_for("fovea_arena_used_bytes", 0)


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """A server of this file's own: its tests kill workers and look at gauges."""
    with running(workers="cpu:vision,cpu:language") as server:
        yield server


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_work(own: Server, streamed: bool) -> None:
    body = orjson.dumps(long_body(own, streamed=streamed))
    host, port = own.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
            b"content-length: %d\r\n\r\n" % len(body) + body
        )
        own.wait_for("fovea_requests_running", 1)
        if streamed:
            assert b"200" in connection.recv(1000)
        else:
            time.sleep(0.2)
    gone_at = time.monotonic()
    all_given_back(own)
    assert time.monotonic() - gone_at < 3
    assert own.metric("fovea_requests_total", code="client_gone") >= 1


def test_what_a_killed_engine_had_begun_is_answered_by_the_next_one(own: Server) -> None:
    engine = max(own.workers())
    asked = long_body(own, tokens=300, streamed=False)
    wanted = own.post(asked).json()["choices"]
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(own.post, asked)
        own.wait_for("fovea_worker_running", 1)
        os.kill(engine, signal.SIGKILL)
        response = waiting.result(timeout=60)
    assert response.json()["choices"] == wanted
    assert own.metric("fovea_request_retries_total") == 1
    all_given_back(own)


def test_a_worker_killed_in_a_stream_ends_it_with_one_error_frame(own: Server) -> None:
    own.wait_ready()
    with streaming(own, long_body(own)) as response:
        assert response.status_code == 200
        data = frames(response)
        first = [next(data) for _ in range(3)]
        assert all("error" not in orjson.loads(one) for one in first)
        os.kill(max(own.workers()), signal.SIGKILL)
        rest = list(data)
    assert rest[-1] == "[DONE]"
    errors = [one for one in rest[:-1] if "error" in orjson.loads(one)]
    assert len(errors) == 1
    assert orjson.loads(errors[0])["error"]["code"] == "worker_lost"
    own.wait_ready()
    all_given_back(own)


def test_while_an_owner_is_away_image_requests_are_503_and_the_process_lives(own: Server) -> None:
    own.wait_ready()
    os.kill(min(own.workers()), signal.SIGKILL)
    deadline = time.monotonic() + 5
    while httpx.get(f"{own.url}/ready").status_code == 200:
        assert time.monotonic() < deadline
    response = own.post(long_body(own, tokens=2, streamed=False))
    assert response.status_code in {200, 503}
    assert httpx.get(f"{own.url}/health").status_code == 200
    own.wait_ready()


def test_the_first_event_decides_the_status(demo: Server) -> None:
    body = long_body(demo)
    body["messages"][0]["content"][1]["text"] = "red circle " * 2000
    with streaming(demo, body) as response:
        assert response.status_code == 400
        response.read()
        assert response.json()["error"]["code"] == "context_length_exceeded"


def test_a_slow_reader_does_not_delay_others(demo: Server) -> None:
    def seconds_of_one() -> float:
        begun = time.monotonic()
        assert demo.post(long_body(demo, tokens=20, streamed=False)).status_code == 200
        return time.monotonic() - begun

    alone = min(seconds_of_one() for _ in range(3))
    with streaming(demo, long_body(demo)) as response:
        assert response.status_code == 200
        beside = min(seconds_of_one() for _ in range(3))
    assert beside < 20 * alone + 1
    demo.wait_for("fovea_requests_running", 0)


def test_the_same_seed_gives_the_same_answer_whatever_else_is_in_the_batch(demo: Server) -> None:
    def ask(seed: int) -> str:
        body = long_body(demo, tokens=40, streamed=False)
        body |= {"temperature": 1.5, "top_p": 0.98, "seed": seed}
        response = demo.post(body)
        assert response.status_code == 200, response.text
        content: str = response.json()["choices"][0]["message"]["content"]
        return content

    alone = [ask(seed) for seed in range(12)]
    assert len(set(alone)) > 6
    with concurrent.futures.ThreadPoolExecutor(12) as threads:
        assert list(threads.map(ask, range(12))) == alone


def test_full_means_refused_early_with_a_number() -> None:
    with running(max_running_requests=2) as server:
        with (
            streaming(server, long_body(server)) as one,
            streaming(server, long_body(server)) as two,
        ):
            assert (one.status_code, two.status_code) == (200, 200)
            begun = time.monotonic()
            refused = server.post(long_body(server))
            assert time.monotonic() - begun < 1
            assert refused.status_code == 429
            assert "2" in refused.json()["error"]["message"]
            assert refused.headers["retry-after"]
            with pytest.raises(openai.RateLimitError):
                server.client.chat.completions.create(
                    model=server.model, messages=[{"role": "user", "content": "hello"}]
                )
        all_given_back(server)


def test_one_bad_picture_is_felt_by_nobody_else(demo: Server) -> None:
    good = long_body(demo, tokens=5, streamed=False)
    bad = long_body(demo, tokens=5, streamed=False)
    bad["messages"][0]["content"][0]["image_url"]["url"] = "data:image/png;base64,AAAA"
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        results = list(threads.map(demo.post, [good, bad] * 12))
    assert [r.status_code for r in results] == [200, 400] * 12
    texts = {r.json()["choices"][0]["message"]["content"] for r in results[::2]}
    assert len(texts) == 1


def test_sigterm_lets_streams_end_then_exits_0_with_no_worker_left() -> None:
    with running(workers="cpu:vision,cpu:language") as server:
        workers = server.workers()
        with streaming(server, long_body(server, tokens=150)) as response:
            data = frames(response)
            next(data)
            server.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + 5
            while httpx.get(f"{server.url}/ready").status_code == 200:
                assert time.monotonic() < deadline
            rest = list(data)
        assert rest[-1] == "[DONE]"
        assert orjson.loads(rest[-2])["choices"][0]["finish_reason"] == "length"
        assert server.process.wait(10) == 0
        assert not any(Path(f"/proc/{pid}").exists() for pid in workers)


def test_one_signal_that_arrives_twice_still_lets_streams_end() -> None:
    """make passes on what a service manager has sent to the whole group already."""
    with running() as server:
        with streaming(server, long_body(server, tokens=150)) as response:
            data = frames(response)
            next(data)
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            assert list(data)[-1] == "[DONE]"
        assert server.process.wait(10) == 0


def test_the_drain_limit_ends_streams_with_an_error_frame() -> None:
    with (
        running(drain_seconds="0.2") as server,
        streaming(server, long_body(server, tokens=1900)) as response,
    ):
        data = frames(response)
        next(data)
        server.process.send_signal(signal.SIGTERM)
        rest = list(data)
        assert rest[-1] == "[DONE]"
        assert "error" in orjson.loads(rest[-2])
        assert server.process.wait(10) == 0


def test_a_second_signal_stops_at_once() -> None:
    with (
        running() as server,
        streaming(server, long_body(server, tokens=1900)) as response,
    ):
        next(frames(response))
        server.process.send_signal(signal.SIGTERM)
        time.sleep(1.1)
        begun = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(10) == 0
        assert time.monotonic() - begun < 5


def test_a_request_out_of_time_is_504() -> None:
    with running(request_seconds="0.5") as server:
        response = server.post(long_body(server, tokens=1900, streamed=False))
        assert response.status_code == 504
        assert response.json()["error"]["code"] == "deadline_passed"
        all_given_back(server)


def test_a_start_that_cannot_work_says_why(tmp_path: Path) -> None:
    assert "did you mean FOVEA_PORT" in refused_start(prt=1)
    assert "config.json" in refused_start(model=tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    said = refused_start(model=tmp_path)
    assert "'llama' is not supported" in said
    assert "qwen3_vl" in said
    assert "cuda" in refused_start(workers="cuda:0:vision+language")


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        said = refused_start(port=taken.getsockname()[1])
    assert "cannot listen on 127.0.0.1" in said


def test_health_answers_while_large_images_are_decoded(demo: Server) -> None:
    parts = [image_part(noise(seed, (1900 + seed, 1400)), "JPEG") for seed in range(8)]
    body = {"model": demo.model, "messages": [{"role": "user", "content": parts}]}
    worst = 0.0
    done = threading.Event()

    def send() -> None:
        assert demo.post(body).status_code == 200
        done.set()

    sender = threading.Thread(target=send)
    sender.start()
    with httpx.Client() as client:
        while not done.is_set():
            begun = time.monotonic()
            assert client.get(f"{demo.url}/health").status_code == 200
            worst = max(worst, time.monotonic() - begun)
    sender.join()
    assert worst < 0.5
