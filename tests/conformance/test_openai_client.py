"""What the official Python client does when things go wrong; how it goes well is in journeys/."""

import time
from collections.abc import Iterator
from typing import Any, Literal

import anyio
import openai
import pytest
from pydantic import BaseModel

from tests.journeys.pupils import TWO_CALLS, Pupil, called
from tests.journeys.server import Server, running
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow


class Shape(BaseModel):
    """A shape that is seen."""

    shape: Literal["circle", "square", "triangle"]


@pytest.fixture(scope="module")
def narrow() -> Iterator[Server]:
    """It takes one request at a time, of three seconds at most."""
    with running(max_running_requests=1, request_seconds=3) as server:
        yield server


def endless(server: Server, **more: Any) -> dict[str, Any]:
    hello = [{"role": "user", "content": "hello"}]
    wishes = {"max_tokens": 1900, "ignore_eos": True, "n": 8}
    return {"model": server.model, "messages": hello, "extra_body": wishes, **more}


def short(server: Server) -> dict[str, Any]:
    return endless(server) | {"extra_body": {"max_tokens": 1}}


def test_an_answer_that_takes_too_long_is_the_clients_timeout_and_leaves_nothing(
    narrow: Server,
) -> None:
    with pytest.raises(openai.APITimeoutError):
        narrow.client.chat.completions.create(**endless(narrow), timeout=0.3)
    narrow.wait_for("fovea_requests_running", 0, seconds=2)


def test_a_server_that_is_not_there_is_a_connection_error() -> None:
    with (
        openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIConnectionError),
    ):
        client.models.list()


def test_a_time_limit_of_the_servers_is_an_internal_server_error(narrow: Server) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        narrow.client.chat.completions.create(**endless(narrow))
    assert (caught.value.status_code, caught.value.code) == (504, "deadline_passed")


def test_an_error_within_a_stream_is_raised_after_what_was_said(narrow: Server) -> None:
    said: list[Any] = []
    stream = narrow.client.chat.completions.create(**endless(narrow), stream=True)
    with pytest.raises(openai.APIError) as caught:
        said.extend(chunk for chunk in stream)
    assert said
    assert not isinstance(caught.value, openai.APIStatusError)
    assert caught.value.code == "deadline_passed"


def test_a_client_that_is_refused_comes_again_when_it_is_told_to(narrow: Server) -> None:
    """Without Retry-After it would come again within half a second."""
    answered: list[tuple[int, float]] = []

    def note(response: Any) -> None:
        answered.append((response.status_code, time.monotonic()))

    http = openai.DefaultHttpxClient(event_hooks={"response": [note]})
    url = f"{narrow.url}/v1"
    with (
        openai.OpenAI(base_url=url, api_key="none", max_retries=8, http_client=http) as client,
        narrow.client.chat.completions.create(**endless(narrow), stream=True) as stream,
    ):
        next(iter(stream))
        with pytest.raises(openai.RateLimitError):
            client.with_options(max_retries=0).chat.completions.create(**short(narrow))
        answered.clear()
        assert client.chat.completions.create(**short(narrow)).choices
    statuses = [status for status, _ in answered]
    assert statuses[-1] == 200
    assert set(statuses[:-1]) == {429}
    assert answered[1][1] - answered[0][1] >= 0.9


def test_the_asynchronous_client_parses_calls_and_counts_pictures(
    demo: Server, caller: Pupil
) -> None:
    circle = image_part(draw_shape("red", "circle", (121, 95)))
    square = image_part(draw_shape("blue", "square", (89, 123)))
    question = text_part("What shape is this?")
    messages = [{"role": "user", "content": [circle, square, question]}]

    async def run() -> tuple[Any, Any, Any]:
        async with demo.async_client() as client:
            wish = {"model": demo.model, "messages": messages, "temperature": 0}
            parsed = await client.chat.completions.parse(**wish, response_format=Shape)
            plain = await client.chat.completions.create(**wish)
        async with caller.server.async_client() as client:
            return parsed, plain, await client.chat.completions.create(**caller.fields("two"))

    parsed, plain, calls = anyio.run(run)
    assert isinstance(parsed.choices[0].message.parsed, Shape)
    assert plain.choices[0].message.content in {"circle", "square"}
    assert plain.usage.prompt_tokens_details.image_tokens > 20
    assert called(calls) == TWO_CALLS
