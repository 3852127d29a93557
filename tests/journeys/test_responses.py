"""Responses, held to what chat answers and counts for the same conversation."""

from typing import Any

import anyio
import httpx
import openai
import pytest
from openai.types.responses import Response

from tests.journeys.server import Server
from tests.pictures import data_uri, draw_shape, image_part, noise, text_part

pytestmark = pytest.mark.slow

Body = dict[str, Any]


def create(server: Server, given: Any, **options: Any) -> Any:
    return server.client.responses.create(model=server.model, input=given, **options)


def chat(server: Server, messages: list[Body], **options: Any) -> Any:
    return server.client.chat.completions.create(model=server.model, messages=messages, **options)


def picture(image: Any, **more: Any) -> Body:
    return {"type": "input_image", "image_url": data_uri(image), "detail": "auto"} | more


def text(value: str) -> Body:
    return {"type": "input_text", "text": value}


def check_same(response: Any, answer: Any) -> None:
    """The response says and counts what the chat completion does."""
    assert isinstance(response, Response)
    assert response.output_text == answer.choices[0].message.content
    usage, counted = response.usage, answer.usage
    assert usage is not None
    assert usage.input_tokens == counted.prompt_tokens
    assert usage.output_tokens == counted.completion_tokens
    assert usage.total_tokens == counted.total_tokens
    details = counted.prompt_tokens_details.model_dump()
    assert usage.input_tokens_details.model_dump()["image_tokens"] == details["image_tokens"]


SHAPES = [
    ("red", "circle", (160, 128)),
    ("blue", "square", (131, 197)),
    ("green", "triangle", (222, 99)),
]


@pytest.mark.parametrize(("colour", "shape", "size"), SHAPES)
def test_a_picture_and_a_question_are_answered_as_in_chat(
    demo: Server, colour: str, shape: str, size: tuple[int, int]
) -> None:
    image = draw_shape(colour, shape, size)
    question = "What shape is this?"
    response = create(demo, [{"role": "user", "content": [picture(image), text(question)]}])
    messages = [{"role": "user", "content": [image_part(image), text_part(question)]}]
    check_same(response, chat(demo, messages))
    assert response.output_text == shape
    assert (response.status, response.object, response.model) == (
        "completed",
        "response",
        demo.model,
    )
    (item,) = response.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "completed")


def test_a_text_alone_with_instructions_is_a_user_after_a_system(demo: Server) -> None:
    response = create(demo, "Hello!", instructions="Be brief.", max_output_tokens=9)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]
    check_same(response, chat(demo, messages, max_completion_tokens=9))
    assert (response.instructions, response.max_output_tokens) == ("Be brief.", 9)


def test_an_answer_may_be_sent_back_as_input(demo: Server) -> None:
    first, second = draw_shape("red", "square", (140, 151)), draw_shape("blue", "circle", (99, 180))
    begun: list[Any] = [{"role": "user", "content": [picture(first), text("What colour is this?")]}]
    answer = create(demo, begun)
    asked = [{"type": "message", "role": "user", "content": [picture(second), text("And this?")]}]
    response = create(demo, begun + [item.model_dump() for item in answer.output] + asked)
    messages = [
        {"role": "user", "content": [image_part(first), text_part("What colour is this?")]},
        {"role": "assistant", "content": [text_part(answer.output_text)]},
        {"role": "user", "content": [image_part(second), text_part("And this?")]},
    ]
    check_same(response, chat(demo, messages))
    assert response.usage.input_tokens_details.cached_tokens > 0


def test_low_detail_takes_fewer_tokens_where_the_budget_says_so(demo: Server) -> None:
    image = noise(31, (233, 245))
    for more in ({"max_pixels": 5000}, {"detail": "low"}):
        response = create(demo, [{"role": "user", "content": [picture(image, **more)]}])
        part = image_part(image)
        if "detail" in more:
            part["image_url"]["detail"] = "low"
        else:
            part["max_pixels"] = 5000
        check_same(response, chat(demo, [{"role": "user", "content": [part]}]))


def test_wishes_are_the_same_as_in_chat_and_told_back(demo: Server) -> None:
    wishes: Body = {"temperature": 1.5, "top_p": 0.8}
    more = {"seed": 7, "top_k": 20, "repetition_penalty": 1.2}
    response = create(
        demo, "Who are you?", metadata={"a": "b"}, user="u", extra_body=more, **wishes
    )
    answer = chat(demo, [{"role": "user", "content": "Who are you?"}], extra_body=more, **wishes)
    check_same(response, answer)
    assert (response.temperature, response.top_p) == (1.5, 0.8)
    assert (response.metadata, response.user, response.truncation) == ({"a": "b"}, "u", "disabled")
    assert response.to_dict()["store"] is False


def test_the_length_that_was_asked_for_leaves_a_response_incomplete(demo: Server) -> None:
    response = create(demo, "Who are you?", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.output[0].status == "incomplete"
    assert response.usage.output_tokens == 2


def test_likelihoods_are_those_of_chat(demo: Server) -> None:
    answer = chat(
        demo, [{"role": "user", "content": "Hello!"}], logprobs=True, top_logprobs=2, max_tokens=8
    )
    expected = answer.choices[0].logprobs.content
    include = ["message.output_text.logprobs"]
    response = create(demo, "Hello!", include=include, top_logprobs=2, max_output_tokens=8)
    told = response.output[0].content[0].logprobs
    assert [entry.token for entry in told] == [entry.token for entry in expected]
    assert [entry.logprob for entry in told] == pytest.approx(
        [entry.logprob for entry in expected], abs=1e-4
    )
    assert [len(entry.top_logprobs) for entry in told] == [2] * len(expected)
    assert create(demo, "Hello!", max_output_tokens=2).output[0].content[0].logprobs is None


OPENING = ["response.created", "response.in_progress"]
ITEM = ["response.output_item.added", "response.content_part.added"]
CLOSING = ["response.output_text.done", "response.content_part.done", "response.output_item.done"]


def check_events(events: list[Any], whole: Any) -> None:
    kinds = [event.type for event in events]
    deltas = kinds.count("response.output_text.delta")
    assert deltas > 1
    middle = ["response.output_text.delta"] * deltas
    assert kinds == [*OPENING, *ITEM, *middle, *CLOSING, "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    texts = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(texts) == whole.output_text == events[-4].text
    last = events[-1].response
    assert last.output_text == whole.output_text
    assert last.usage.total_tokens == whole.usage.total_tokens
    assert {event.response.id for event in (events[0], events[1], events[-1])} == {last.id}
    assert (events[0].response.status, events[0].response.output) == ("in_progress", [])
    assert {event.item_id for event in events[3:-2]} == {last.output[0].id}


def test_a_stream_is_the_response_cut_up_in_the_official_order(demo: Server) -> None:
    image = draw_shape("red", "circle", (201, 143))
    given = [{"role": "user", "content": [picture(image), text("Describe the image.")]}]
    whole = create(demo, given)
    check_events(list(create(demo, given, stream=True)), whole)

    async def run() -> list[Any]:
        async with demo.async_client() as client:
            stream = await client.responses.create(model=demo.model, input=given, stream=True)
            return [event async for event in stream]

    check_events(anyio.run(run), whole)


def test_the_clients_stream_helper_puts_the_response_together(demo: Server) -> None:
    image = draw_shape("blue", "triangle", (144, 203))
    given = [{"role": "user", "content": [picture(image), text("Describe the image.")]}]
    whole = create(demo, given)
    with demo.client.responses.stream(model=demo.model, input=given) as stream:
        snapshots = [e.snapshot for e in stream if e.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert snapshots[-1] == final.output_text == whole.output_text
    assert final.usage.total_tokens == whole.usage.total_tokens

    async def run() -> str:
        async with demo.async_client() as client:
            manager = client.responses.stream(model=demo.model, input=given)
            async with manager as stream:
                async for _ in stream:
                    pass
                response = await stream.get_final_response()
                return str(response.output_text)

    assert anyio.run(run) == whole.output_text


def test_frames_carry_their_names_and_no_done(demo: Server) -> None:
    body = {"model": demo.model, "input": "Hello!", "stream": True, "max_output_tokens": 3}
    response = httpx.post(f"{demo.url}/v1/responses", json=body)
    frames = response.text.strip().split("\n\n")
    assert all(frame.startswith("event: response.") for frame in frames)
    assert frames[-1].startswith("event: response.incomplete\n")


def part(**fields: Any) -> Body:
    return {"input": [{"role": "user", "content": [text("x"), fields]}]}


WRONG: list[tuple[Body, str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": 5}, "input"),
    ({"input": [5]}, "input[0]"),
    ({"input": [{"role": "elf", "content": "x"}]}, "input[0].role"),
    ({"input": [{"role": "user"}]}, "input[0].content"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
    ({"input": [{"type": "computer_call"}]}, "input[0].type"),
    (part(type="input_text"), "input[0].content[1].text"),
    (part(type="input_text", text=5), "input[0].content[1].text"),
    (part(type="text", text="x"), "input[0].content[1].type"),
    (part(type="input_file", file_id="f"), "input[0].content[1].type"),
    (part(type="input_image", file_id="f"), "input[0].content[1].file_id"),
    (part(type="input_image"), "input[0].content[1].image_url"),
    (part(type="input_image", image_url=5), "input[0].content[1].image_url"),
    (part(type="input_image", image_url="x"), "input[0].content[1].image_url"),
    (part(type="input_image", image_url="data:image/png;base64,AAAA"),
     "input[0].content[1].image_url"),
    (part(type="input_image", image_url="http://127.0.0.1/a.png"), "input[0].content[1].image_url"),
    (part(type="input_image", image_url="https://a.test/x", detail="huge"),
     "input[0].content[1].detail"),
    ({"instructions": 5}, "instructions"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"min_tokens": 3, "max_output_tokens": 2}, "min_tokens"),
    ({"temperature": 3}, "temperature"),
    ({"top_logprobs": 21}, "top_logprobs"),
    ({"include": ["all"]}, "include[0]"),
    ({"store": True}, "store"),
    ({"background": True}, "background"),
    ({"previous_response_id": "resp_1"}, "previous_response_id"),
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"truncation": "auto"}, "truncation"),
    ({"max_tool_calls": 1}, "max_tool_calls"),
    ({"moderation": {"model": "m"}}, "moderation"),
    ({"service_tier": "flex"}, "service_tier"),
    ({"reasoning": {"summary": "detailed"}}, "reasoning.summary"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"),
    ({"text": {"format": 5}}, "text.format"),
    ({"tools": [{"type": "web_search"}]}, "tools"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"input": "a b " * 4000}, "input"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[str(f)[:50] for f, _ in WRONG])
def test_what_is_wrong_is_named_as_the_body_has_it(demo: Server, fields: Body, param: str) -> None:
    for stream in (False, True):
        body = {"model": demo.model, "input": "x", "stream": stream} | fields
        response = httpx.post(f"{demo.url}/v1/responses", json=body)
        error = response.json()["error"]
        assert (response.status_code, error["type"]) == (400, "invalid_request_error")
        assert error["param"].startswith(param)
        assert len(response.content) < 1024


def test_errors_are_the_clients_own_classes(demo: Server) -> None:
    with pytest.raises(openai.NotFoundError):
        demo.client.responses.create(model="other", input="x")
    with pytest.raises(openai.BadRequestError):
        create(demo, "x", previous_response_id="resp_1")


def test_unknown_fields_are_named_and_harmless_ones_are_not(demo: Server) -> None:
    items = [
        {"role": "user", "content": [text("x") | {"mood": 1}], "id": "i", "phase": "commentary"}
    ]
    raw = demo.client.responses.with_raw_response.create(
        model=demo.model,
        input=items,
        max_output_tokens=1,
        prompt_cache_key="k",
        safety_identifier="s",
        extra_body={"wizard": 1, "text": {"elf": 1}, "n": 1, "previous_response_id": None},
    )
    assert raw.headers["x-fovea-ignored-fields"] == "input[].content[].mood, n, text.elf, wizard"
