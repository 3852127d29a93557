"""Workers die, and requests are answered all the same; what kills workers is found out and fenced.

The workers are fakes: real processes whose faults can be provoked, see `tests.fakes`.
"""

import concurrent.futures
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from PIL import Image

from tests.journeys.server import Server, running
from tests.pictures import ask, image_part

pytestmark = pytest.mark.slow

DIE, DIE_LATER, SLOW = "^", "\\", "@"  # see PROMPT_FAULTS
SECONDS = 30.0


def plain(colour: tuple[int, int, int], width: int) -> dict[str, Any]:
    """A picture of one colour; PIXEL_FAULTS says which do harm."""
    return image_part(Image.new("RGB", (width, 40), colour))


def body(server: Server, *parts: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    return ask(server.model, *parts, **({"max_tokens": 40} | fields))


def answer_of(response: httpx.Response) -> str:
    assert response.status_code == 200, response.text
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


def kill(server: Server, which: int = 0, number: int = signal.SIGKILL) -> None:
    os.kill(sorted(server.workers())[which], number)


def check_whole(server: Server) -> None:
    """All workers are back and nothing is held."""
    server.wait_ready()
    for name in (
        "fovea_requests_running",
        "fovea_worker_running",
        "fovea_worker_waiting",
        "fovea_kv_used_tokens",
        "fovea_arena_used_bytes",
    ):
        server.wait_for(name, 0)


@pytest.fixture
def one() -> Iterator[Server]:
    """One worker with both roles."""
    with running("tests.fake_gateway", restart_seconds="0.1", log_level="warning") as server:
        yield server
        check_whole(server)


@pytest.fixture
def two() -> Iterator[Server]:
    """Two workers with both roles."""
    both = "cpu:vision+language,cpu:vision+language"
    with running("tests.fake_gateway", workers=both, restart_seconds="0.1") as server:
        yield server
        check_whole(server)


@pytest.mark.parametrize(
    ("parts", "stage"),
    [
        pytest.param((f"decode {SLOW}",), "fovea_worker_running", id="decoding"),
        pytest.param((plain((13, 5, 0), 44), "encode"), "fovea_arena_used_bytes", id="encoding"),
    ],
)
def test_a_request_whose_worker_is_killed_gets_the_answer_it_would_have_got(
    one: Server, parts: tuple[Any, ...], stage: str
) -> None:
    asked = body(one, *parts, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(one.post, asked)
        limit = time.monotonic() + SECONDS
        while not one.metric(stage):
            assert time.monotonic() < limit
        kill(one)
        answer = answer_of(waiting.result(SECONDS))
    assert one.metric("fovea_request_retries_total") == 1
    assert one.metric("fovea_worker_lost_total") == 1
    assert answer == answer_of(one.post(asked))


def test_all_choices_of_a_request_are_begun_again(one: Server) -> None:
    asked = body(one, f"several {SLOW}", n=3, ignore_eos=True)
    with concurrent.futures.ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(one.post, asked)
        one.wait_for("fovea_worker_running", 3)
        kill(one)
        again = waiting.result(SECONDS).json()
    assert again["choices"] == one.post(asked).json()["choices"]
    assert len(again["choices"]) == 3


def test_a_stream_that_has_not_begun_is_begun_again_and_one_that_has_ends_by_name(
    one: Server,
) -> None:
    asked = body(one, f"{DIE_LATER} stream", stream=True, ignore_eos=True)
    with httpx.stream("POST", f"{one.url}/v1/chat/completions", json=asked, timeout=60) as told:
        assert told.status_code == 200
        data = [line[6:] for line in told.iter_lines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]"
    errors = [orjson.loads(each)["error"] for each in data[:-1] if "error" in orjson.loads(each)]
    assert [error["code"] for error in errors] == ["worker_lost"]


def test_a_prompt_that_kills_workers_is_refused_after_two_deaths(one: Server) -> None:
    poison = body(one, f"poison {DIE}")
    assert code_of(one.post(poison)) == (422, "request_fenced")
    one.wait_ready()
    begun = time.monotonic()
    assert code_of(one.post(poison | {"temperature": 0.5})) == (422, "request_fenced")
    assert time.monotonic() - begun < 1
    assert one.metric("fovea_worker_lost_total") == 2
    assert one.metric("fovea_fenced") == 1
    answer_of(one.post(body(one, "poison without the sign")))


def test_who_was_alone_when_workers_were_killed_for_another_reason_is_soon_let_in_again() -> None:
    with running("tests.fake_gateway", restart_seconds="0.1", fence_seconds=50) as server:
        asked = body(server, f"innocent {SLOW}", ignore_eos=True, max_tokens=100)
        with concurrent.futures.ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(server.post, asked)
            for number in (0, 1):
                server.wait_for("fovea_request_retries_total", number)
                server.wait_for("fovea_worker_running", 1)
                kill(server)
            refused = waiting.result(SECONDS)
        assert code_of(refused) == (422, "request_fenced")
        assert 1 <= int(refused.headers["retry-after"]) <= 5
        server.wait_ready()
        answer_of(server.post(asked | {"messages": [{"role": "user", "content": "another"}]}))
        assert code_of(server.post(asked)) == (422, "request_fenced")
        time.sleep(int(server.post(asked).headers["retry-after"]))
        answer_of(server.post(asked))
        assert server.metric("fovea_fenced") == 0
        check_whole(server)


def test_an_image_that_kills_workers_is_named_and_refused_in_every_prompt(one: Server) -> None:
    poison, good = plain((13, 0, 0), 66), plain((0, 0, 200), 67)
    response = one.post(body(one, good, poison, "what?"))
    assert code_of(response) == (422, "image_fenced")
    assert response.json()["error"]["image_index"] == 1
    one.wait_ready()
    other = one.post(body(one, poison, "another question"))
    assert code_of(other) == (422, "image_fenced")
    assert one.metric("fovea_worker_lost_total") == 2
    answer_of(one.post(body(one, good, "and this?")))


def test_requests_that_were_there_when_an_image_killed_workers_are_all_answered(
    one: Server,
) -> None:
    innocent = [
        body(one, plain((0, 10 * n, 90), 50 + n), f"i {n} {SLOW}", ignore_eos=True)
        for n in range(8)
    ]
    poison = body(one, plain((13, 0, 0), 80), "poison")
    with concurrent.futures.ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(one.post, each) for each in innocent]
        one.wait_for("fovea_requests_running", 8)
        bad = threads.submit(one.post, poison)
        answers = [answer_of(each.result(SECONDS)) for each in waiting]
        assert code_of(bad.result(SECONDS)) == (422, "image_fenced")
    assert one.metric("fovea_worker_lost_total") == 2
    assert answers == [answer_of(one.post(each)) for each in innocent]
    assert one.metric("fovea_fenced") == 1


def test_requests_that_were_there_when_a_prompt_killed_workers_are_all_answered(
    two: Server,
) -> None:
    innocent = [body(two, f"i {n} {SLOW}", ignore_eos=True) for n in range(8)]
    with concurrent.futures.ThreadPoolExecutor(9) as threads:
        waiting = [threads.submit(two.post, each) for each in innocent]
        two.wait_for("fovea_requests_running", 8)
        bad = threads.submit(two.post, body(two, f"p {DIE}"))
        answers = [answer_of(each.result(SECONDS)) for each in waiting]
        assert code_of(bad.result(SECONDS)) == (422, "request_fenced")
    assert two.metric("fovea_worker_lost_total") == 2
    assert answers == [answer_of(two.post(each)) for each in innocent]
    assert two.metric("fovea_fenced") == 1
