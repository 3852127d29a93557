"""An image that the KV cache covers is neither decoded nor encoded, though its embeddings are gone.

The servers here keep no embeddings at all: what is not covered is always encoded again.
"""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion
from PIL import Image

from tests.journeys.chats import Message, ask, user
from tests.journeys.server import Server, running
from tests.pictures import data_uri, draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

BLOCK_TOKENS = 16
# Long enough to fill the block in which the image ends.
COLOUR = text_part("What colour is the shape that you can see in this picture here?")
SHAPE = text_part("And what shape is it, please?")
SHARE = {"embedding_cache_share": 0}


@pytest.fixture(scope="module")
def own() -> Iterator[Server]:
    """An owner and two engines with little room."""
    room = {"kv_cache_tokens": 2048, "max_context_tokens": 512, "fence_seconds": 0}
    with running(workers="cpu:vision,cpu:language,cpu:language", **room, **SHARE) as server:
        yield server


@pytest.fixture(scope="module")
def forgetful() -> Iterator[Server]:
    """The same without a prefix cache: the control, and what the answers are held to."""
    with running(prefix_cache="false", **SHARE) as server:
        yield server


def text(answer: ChatCompletion) -> str:
    return answer.choices[0].message.content or ""


def next_turn(messages: list[Message], answer: ChatCompletion, *parts: dict[str, Any]) -> None:
    messages += [{"role": "assistant", "content": text(answer)}, user(*parts)]


def cached_tokens(answer: ChatCompletion) -> int:
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


def num_known(answer: ChatCompletion) -> int:
    """Tokens in whole blocks once an answer has ended; its last token is chosen, not computed."""
    assert answer.usage is not None
    return (answer.usage.total_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def work(server: Server) -> tuple[float, float]:
    """Images decoded and encoded so far."""
    decoded = server.metric("fovea_stage_seconds_count", stage="decode")
    return decoded, server.metric("fovea_images_encoded_total")


def covered(server: Server) -> float:
    return server.metric("fovea_embedding_lookups_total", result="covered")


def named(name: str, picture: Image.Image | None = None) -> dict[str, Any]:
    url = None if picture is None else {"url": data_uri(picture)}
    return {"type": "image_url", "image_url": url, "uuid": name}


def check_idle(server: Server) -> None:
    server.wait_for("fovea_requests_running", 0)
    for gauge in (
        "fovea_kv_used_tokens",
        "fovea_worker_running",
        "fovea_worker_waiting",
        "fovea_owner_load_patches",
        "fovea_embedding_idle_bytes",
        "fovea_arena_used_bytes",
    ):
        server.wait_for(gauge, 0)


def test_the_next_turns_of_a_chat_encode_new_images_alone(own: Server, forgetful: Server) -> None:
    pictures = [draw_shape(colour, "circle", (155, 140)) for colour in ("red", "blue")]
    messages = [user(*map(image_part, pictures), COLOUR)]
    first = ask(own, messages)
    decoded, encoded = work(own)
    before = covered(own)
    next_turn(messages, first, SHAPE)
    second = ask(own, messages)
    assert work(own) == (decoded, encoded)
    assert covered(own) == before + 2
    assert cached_tokens(second) == num_known(first)
    new = image_part(draw_shape("green", "square", (133, 167)))
    next_turn(messages, second, new, text_part("And this one?"))
    third = ask(own, messages)
    assert work(own) == (decoded + 1, encoded + 1)
    assert cached_tokens(third) == num_known(second) > num_known(first)
    encoded = work(forgetful)[1]
    for turn, answer in ((1, first), (3, second), (5, third)):
        assert text(ask(forgetful, messages[:turn])) == text(answer)
    assert work(forgetful)[1] == encoded + 2 + 2 + 3
    check_idle(own)


def test_images_of_one_size_are_not_confused(own: Server) -> None:
    messages = {
        colour: [user(image_part(draw_shape(colour, "square", (157, 139))), COLOUR)]
        for colour in ("red", "blue", "green", "yellow")
    }
    for colour, asked in messages.items():
        answer = ask(own, asked)
        assert text(answer) == colour
        next_turn(asked, answer, COLOUR)
    before = work(own)
    for colour in reversed(messages):
        assert text(ask(own, messages[colour])) == colour
    assert work(own) == before


def test_a_name_alone_is_enough_where_the_image_is_covered_and_else_asks_for_it(
    own: Server,
) -> None:
    picture = draw_shape("red", "circle", (159, 137))
    messages = [user(named("mine", picture), COLOUR)]
    first = ask(own, messages)
    messages[0]["content"][0] = named("mine")
    next_turn(messages, first, COLOUR)
    before = work(own)
    assert text(ask(own, messages)) == "red"
    assert work(own) == before
    together(own, [[user(text_part(f"{number} " * 100))] for number in range(32)])  # fill the KV
    response = own.post({"model": own.model, "messages": messages})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "image_not_kept"
    assert response.json()["error"]["param"] == "messages[0].content[0].uuid"
    messages[0]["content"][0] = named("mine", picture)
    assert text(ask(own, messages)) == "red"
    assert work(own) == (before[0] + 1, before[1] + 1)
    check_idle(own)


def test_all_choices_do_without_the_image(own: Server) -> None:
    messages = [user(image_part(draw_shape("blue", "square", (161, 135))), COLOUR)]
    first = ask(own, messages)
    next_turn(messages, first, COLOUR)
    before = work(own)
    answer = ask(own, messages, n=4)
    assert [choice.message.content for choice in answer.choices] == ["blue"] * 4
    assert work(own) == before
    assert answer.usage is not None
    assert cached_tokens(answer) == num_known(first)


def test_the_engine_that_knows_the_image_answers(own: Server) -> None:
    for number, colour in enumerate(("red", "blue", "green")):
        messages = [user(image_part(draw_shape(colour, "square", (165 + number, 131))), COLOUR)]
        next_turn(messages, ask(own, messages), COLOUR)
        before = work(own)
        answers = together(own, [messages] * 3)
        assert [text(answer) for answer in answers] == [colour] * 3
        assert work(own) == before
    check_idle(own)


def test_an_engine_that_died_is_not_asked_and_the_image_is_encoded_again(own: Server) -> None:
    messages = [user(image_part(draw_shape("green", "circle", (163, 133))), COLOUR)]
    next_turn(messages, ask(own, messages), COLOUR)
    lost = own.metric("fovea_worker_lost_total")
    kill_engines(own)
    own.wait_for("fovea_worker_lost_total", lost + 2)
    own.wait_ready()
    before, hits = work(own), covered(own)
    assert text(ask(own, messages)) == "green"
    assert work(own) == (before[0] + 1, before[1] + 1)
    assert covered(own) == hits


def test_a_storm_of_leavers_and_two_deaths_leaves_nothing_behind(own: Server) -> None:
    chats = begin_chats(own)
    told = list[str]()

    def chat(number: int, colour: str) -> None:
        limit = 0.05 if number % 4 == 3 else 60  # seconds; who has few leaves
        try:
            told.append(f"{text(ask(own, chats[colour], timeout=limit))} for {colour}")
        except openai.APITimeoutError:
            assert limit < 60
        except openai.InternalServerError as error:
            told.append(str(error.code))

    def storm(first: int) -> list[threading.Thread]:
        names = [*chats] * 6
        return [
            threading.Thread(target=chat, args=pair)
            for pair in enumerate(names, first * len(names))
        ]

    calm, cut = storm(0), storm(1)
    for thread in [*calm, *cut]:
        thread.start()
        if thread is cut[4]:
            kill_engines(own)
    for thread in [*calm, *cut]:
        thread.join()
    own.wait_ready()
    check_idle(own)
    known = {f"{colour} for {colour}" for colour in chats}
    assert known <= set(told) <= known | {"worker_lost", "not_ready"}
    check_answers(own, chats)
    check_idle(own)


def begin_chats(server: Server) -> dict[str, list[Message]]:
    """A chat about an image of each colour, at its second turn."""
    chats = {}
    for number, colour in enumerate(("red", "blue", "green", "yellow", "purple")):
        picture = draw_shape(colour, "circle", (171 + number, 129))
        chats[colour] = [user(named(colour, picture), COLOUR)]
        next_turn(chats[colour], ask(server, chats[colour]), COLOUR)
    return chats


def check_answers(server: Server, chats: dict[str, list[Message]]) -> None:
    for colour, messages in chats.items():
        assert text(ask(server, messages)) == colour


def chat(
    server: Server, colour: str, messages: list[Message], seconds: float, told: list[str]
) -> None:
    """Ask for some seconds; adds what came of it to `told`."""
    try:
        told.append(f"{text(ask(server, messages, timeout=seconds))} for {colour}")
    except openai.APITimeoutError:
        told.append("left")
    except openai.InternalServerError as error:
        told.append(str(error.code))


def kill_engines(server: Server) -> None:
    children = server.workers()  # in the order of their starts
    for pid in children[-2:]:
        os.kill(pid, signal.SIGKILL)


def together(server: Server, chats: list[list[Message]]) -> list[ChatCompletion]:
    answers: dict[int, ChatCompletion] = {}

    def work(index: int, messages: list[Message]) -> None:
        answers[index] = ask(server, messages)

    threads = [threading.Thread(target=work, args=pair) for pair in enumerate(chats)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answers[index] for index in sorted(answers)]
