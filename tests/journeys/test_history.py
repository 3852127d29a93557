"""What was computed of a conversation is not computed again, and never taken for another's."""

import pytest
from openai.types.chat import ChatCompletion

from tests.journeys.chats import Message, ask, user
from tests.journeys.server import Server, running
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

BLOCK_TOKENS = 16
COLOUR = text_part("What colour is this?")


def reply(answer: ChatCompletion) -> Message:
    return {"role": "assistant", "content": answer.choices[0].message.content}


def cached_tokens(answer: ChatCompletion) -> int:
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    return answer.usage.prompt_tokens_details.cached_tokens or 0


def num_known(answer: ChatCompletion) -> int:
    """Tokens in whole blocks once an answer has ended; its last token is chosen, not computed."""
    assert answer.usage is not None
    return (answer.usage.total_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_each_turn_of_a_chat_computes_what_is_new(demo: Server) -> None:
    pictures = [draw_shape(colour, "circle", (171, 140)) for colour in ("red", "blue")]
    messages = [user(*map(image_part, pictures), COLOUR)]
    first = ask(demo, messages)
    messages += [reply(first), user(text_part("What shape is this?"))]
    second = ask(demo, messages)
    assert cached_tokens(second) == num_known(first)
    third_picture = image_part(draw_shape("green", "square", (133, 169)))
    messages += [reply(second), user(third_picture, text_part("And this?"))]
    third = ask(demo, messages)
    assert cached_tokens(third) == num_known(second) > num_known(first)


def test_two_images_of_one_size_are_not_confused(demo: Server) -> None:
    found = {}
    for colour in ("red", "green", "blue", "red"):
        answer = ask(demo, [user(image_part(draw_shape(colour, "square", (173, 139))), COLOUR)])
        assert answer.choices[0].message.content == colour
        found[colour] = cached_tokens(answer)
    assert answer.usage is not None
    # Of other images it had no more than what stands before them; of its own all but the end.
    assert max(found["green"], found["blue"]) <= 2 * BLOCK_TOKENS
    assert found["red"] == (answer.usage.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_equal_pixels_in_another_file_are_known(demo: Server) -> None:
    picture = draw_shape("green", "triangle", (177, 141))
    first = ask(demo, [user(image_part(picture), COLOUR)])
    again = ask(demo, [user(image_part(picture, "BMP"), COLOUR)])
    assert first.usage is not None
    assert again.choices[0].message.content == first.choices[0].message.content
    assert cached_tokens(again) == (first.usage.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS


def test_usage_is_right_where_a_stop_string_ends_the_answer(demo: Server) -> None:
    messages = [user(image_part(draw_shape("red", "circle", (179, 143))), COLOUR)]
    first = ask(demo, messages)
    stopped = ask(demo, messages, stop=["e"])
    assert stopped.choices[0].message.content == "r"
    assert first.usage is not None
    assert cached_tokens(stopped) == (first.usage.prompt_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    stream = demo.client.chat.completions.create(
        model=demo.model,
        messages=messages,
        stream=True,
        stop=["e"],
        stream_options={"include_usage": True},
    )
    usage = list(stream)[-1].usage
    assert usage.prompt_tokens_details.cached_tokens == cached_tokens(stopped)


def test_kept_blocks_are_shown_apart_from_held_ones(demo: Server) -> None:
    ask(demo, [user(image_part(draw_shape("red", "circle", (181, 145))), COLOUR)])
    demo.wait_for("fovea_kv_used_tokens", 0)
    assert demo.metric("fovea_kv_cached_tokens") > 0
    before = demo.metric("fovea_cached_tokens_total")
    again = ask(demo, [user(image_part(draw_shape("red", "circle", (181, 145))), COLOUR)])
    assert demo.metric("fovea_cached_tokens_total") == before + cached_tokens(again)


def test_nothing_is_kept_when_told_so() -> None:
    with running(prefix_cache="false") as server:
        messages = [user(image_part(draw_shape("red", "circle")), COLOUR)]
        answers = [ask(server, messages) for _ in range(2)]
        assert [cached_tokens(answer) for answer in answers] == [0, 0]
        server.wait_for("fovea_kv_used_tokens", 0)
        assert server.metric("fovea_kv_cached_tokens") == 0
