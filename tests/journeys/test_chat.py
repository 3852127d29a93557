"""The main job: a picture and a question in, the right answer out, through the official client."""

from typing import Any

import anyio
import pytest
from openai.types.chat import ChatCompletion

from tests.journeys.server import Server
from tests.pictures import draw_shape, image_part, text_part

pytestmark = pytest.mark.slow

QUESTION = "What shape is this?"
SHAPES = [("red", "circle"), ("blue", "square"), ("green", "triangle")]


def ask(server: Server, *parts: dict[str, Any], **options: Any) -> ChatCompletion:
    create = server.client.chat.completions.create
    answer = create(
        model=server.model,
        messages=[{"role": "user", "content": list(parts)}],
        **options,
    )
    assert isinstance(answer, ChatCompletion)
    return answer


@pytest.mark.parametrize(("colour", "shape"), SHAPES)
def test_a_picture_and_a_question_get_the_right_answer(
    demo: Server, colour: str, shape: str
) -> None:
    answer = ask(demo, image_part(draw_shape(colour, shape)), text_part(QUESTION))
    assert answer.choices[0].message.content == shape
    assert answer.choices[0].finish_reason == "stop"


def test_two_owners_and_one_engine_give_the_same_answers(split: Server) -> None:
    for colour, shape in SHAPES:
        answer = ask(split, image_part(draw_shape(colour, shape)), text_part(QUESTION))
        assert answer.choices[0].message.content == shape


def test_the_stream_is_the_plain_answer_cut_up(demo: Server) -> None:
    parts = (image_part(draw_shape("red", "circle")), text_part("Describe the image."))
    whole = ask(demo, *parts).choices[0].message.content
    stream = demo.client.chat.completions.create(
        model=demo.model,
        messages=[{"role": "user", "content": list(parts)}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    texts = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(texts) == whole
    assert sum(bool(text) for text in texts) > 3
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
    assert [reason for reason in reasons if reason] == ["stop"]
    assert len({chunk.id for chunk in chunks}) == 1
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens > 3


def test_the_async_client_streams_too(demo: Server) -> None:
    async def run() -> str:
        client = demo.async_client()
        stream = await client.chat.completions.create(
            model=demo.model,
            messages=[
                {
                    "role": "user",
                    "content": [image_part(draw_shape("blue", "square")), text_part(QUESTION)],
                }
            ],
            stream=True,
        )
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
        await client.close()
        return text

    assert anyio.run(run) == "square"


def test_usage_counts_prompt_image_and_completion_tokens(demo: Server) -> None:
    text = ask(demo, text_part(QUESTION)).usage
    one = ask(demo, image_part(draw_shape("red", "circle", (160, 160))), text_part(QUESTION)).usage
    assert text is not None
    assert one is not None
    assert text.prompt_tokens_details is not None
    assert one.prompt_tokens_details is not None
    assert text.prompt_tokens_details.model_dump()["image_tokens"] == 0
    assert one.prompt_tokens_details.model_dump()["image_tokens"] == 25
    assert one.prompt_tokens_details.cached_tokens == 0
    assert one.total_tokens == one.prompt_tokens + one.completion_tokens
    # "Image 1: ", start and end of the image besides its tokens.
    assert one.prompt_tokens - text.prompt_tokens > 25


def test_images_may_stand_in_any_message_and_order(demo: Server) -> None:
    answer = demo.client.chat.completions.create(
        model=demo.model,
        messages=[
            {"role": "user", "content": [image_part(draw_shape("red", "circle"))]},
            {"role": "assistant", "content": "a red circle"},
            {
                "role": "user",
                "content": [text_part("What is it?"), image_part(draw_shape("blue", "square"))],
            },
        ],
    )
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    # 160 x 128 pixels are 5 x 4 merged patches, twice.
    assert answer.usage.prompt_tokens_details.model_dump()["image_tokens"] == 40


def test_max_tokens_ends_with_length(demo: Server) -> None:
    parts = (image_part(draw_shape("red", "circle")), text_part("Describe the image."))
    answer = ask(demo, *parts, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_ignore_eos_runs_to_max_tokens(demo: Server) -> None:
    parts = (image_part(draw_shape("red", "circle")), text_part(QUESTION))
    answer = ask(demo, *parts, max_tokens=9, extra_body={"ignore_eos": True})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9


def test_a_stop_string_ends_the_answer_before_it(demo: Server) -> None:
    parts = (image_part(draw_shape("red", "circle")), text_part("Describe the image."))
    whole = ask(demo, *parts).choices[0].message.content
    assert whole is not None
    answer = ask(demo, *parts, stop=[" red"])
    assert answer.choices[0].message.content == whole.split(" red")[0]
    assert answer.choices[0].finish_reason == "stop"


def test_the_models_route_names_the_model(demo: Server) -> None:
    assert [model.id for model in demo.client.models.list()] == [demo.model]
