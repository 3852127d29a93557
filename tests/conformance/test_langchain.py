"""ChatOpenAI of langchain-openai, used as its own documentation does."""

import base64
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

from tests.journeys.pupils import ARGUMENTS, Pupil
from tests.journeys.server import Server
from tests.pictures import draw_shape, encoded, image_part, text_part

pytestmark = pytest.mark.slow

QUESTION = "What shape is this?"


class Shape(BaseModel):
    """A shape that is seen."""

    shape: Literal["circle", "square", "triangle"]


@tool
def look(where: str) -> str:
    """Look somewhere."""
    return f"I see {where}."


@tool
def see() -> str:
    """See."""
    return "nothing"


def chat_of(server: Server, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=f"{server.url}/v1",
        api_key=SecretStr("none"),
        model=server.model,
        max_retries=0,
        temperature=0,
        **options,
    )


def about(*parts: dict[str, Any]) -> list[HumanMessage]:
    return [HumanMessage(content=list(parts))]


def question(colour: str, shape: str, size: tuple[int, int]) -> list[HumanMessage]:
    return about(image_part(draw_shape(colour, shape, size)), text_part(QUESTION))


def usage_of(message: AIMessage) -> tuple[int, int, int]:
    usage = message.usage_metadata
    assert usage is not None
    return usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]


def test_a_picture_is_answered_with_usage(demo: Server) -> None:
    answer = chat_of(demo).invoke(question("red", "circle", (91, 77)))
    assert answer.content == "circle"
    assert answer.response_metadata["finish_reason"] == "stop"
    prompt, completion, total = usage_of(answer)
    assert prompt > 10
    assert completion == 2
    assert total == prompt + completion


def test_its_own_form_of_an_image_is_taken(demo: Server) -> None:
    data = base64.b64encode(encoded(draw_shape("blue", "square", (93, 79)))).decode()
    own = {"type": "image", "base64": data, "mime_type": "image/png"}
    assert chat_of(demo).invoke(about(own, text_part(QUESTION))).content == "square"


def test_several_images_are_told_apart(demo: Server) -> None:
    circle = image_part(draw_shape("red", "circle", (97, 81)))
    square = image_part(draw_shape("green", "square", (85, 99)))
    one, two = (
        chat_of(demo).invoke(about(*parts, text_part("What shape is in the first image?")))
        for parts in ((circle, square), (square, circle))
    )
    assert (one.content, two.content) == ("circle", "square")
    assert usage_of(one)[0] == usage_of(two)[0]


def test_a_stream_is_the_answer_in_pieces_and_has_usage(demo: Server) -> None:
    messages = about(image_part(draw_shape("red", "circle", (101, 83))), text_part("Describe it."))
    chat = chat_of(demo, stream_usage=True)
    whole = chat.invoke(messages)
    chunks = list(chat.stream(messages))
    assert len([chunk for chunk in chunks if chunk.content]) > 1
    joined = sum(chunks[1:], start=chunks[0])
    assert isinstance(joined, AIMessageChunk)
    assert joined.content == whole.content
    assert usage_of(joined) == usage_of(whole)


def test_a_batch_is_answered_in_order(demo: Server) -> None:
    sizes = {"circle": (71, 91), "square": (73, 93), "triangle": (75, 95)}
    asked = [question("blue", shape, size) for shape, size in sizes.items()]
    assert [answer.content for answer in chat_of(demo).batch(list(asked))] == list(sizes)


def test_structured_output_has_the_callers_type(demo: Server) -> None:
    chat = chat_of(demo).with_structured_output(Shape, method="json_schema", strict=True)
    assert isinstance(chat.invoke(question("red", "circle", (105, 87))), Shape)


def test_json_mode_lets_a_model_say_the_object_it_was_asked_for(caller: Pupil) -> None:
    bias = caller.reciter.say("json")["logit_bias"]
    chat = chat_of(caller.server, logit_bias=bias)
    asked = [HumanMessage("Answer with a shape as JSON.")]
    assert chat.with_structured_output(Shape, method="json_mode").invoke(asked) == Shape(
        shape="circle"
    )
    whole = chat.with_structured_output(None, method="json_mode").invoke(asked)
    assert whole == {"shape": "circle", "of": [1.5, "日本"]}


def test_the_newer_route_is_answered_too(demo: Server) -> None:
    chat = chat_of(demo, use_responses_api=True)
    answer = chat.invoke(question("green", "triangle", (107, 89)))
    assert answer.text == "triangle"
    assert usage_of(answer)[1] == 2
    pieces = list(chat.stream(question("green", "triangle", (107, 89))))
    assert "".join(piece.text for piece in pieces) == "triangle"


def test_calls_are_made_and_results_taken(caller: Pupil) -> None:
    def turn(text: str, messages: list[Any]) -> AIMessage:
        chat = chat_of(caller.server).bind_tools([look, see])
        answer = chat.invoke(messages, logit_bias=caller.reciter.say(text)["logit_bias"])
        assert isinstance(answer, AIMessage)
        return answer

    messages: list[Any] = [HumanMessage("Go on.")]
    asked = turn("two", messages)
    assert [call["name"] for call in asked.tool_calls] == ["look", "see"]
    assert asked.tool_calls[0]["args"] == {"where": "Zürich 日本 🦊"}
    tools = {"look": look, "see": see}
    results = [tools[call["name"]].invoke(call) for call in asked.tool_calls]
    assert all(isinstance(result, ToolMessage) for result in results)
    answer = turn("plain", [*messages, asked, *results])
    assert answer.content == "No tool is needed 🦊.\n"
    assert not answer.tool_calls


def test_calls_are_gathered_from_a_stream(caller: Pupil) -> None:
    chat = chat_of(caller.server).bind_tools([look, see])
    bias = caller.reciter.say("two")["logit_bias"]
    chunks = list(chat.stream([HumanMessage("Go on.")], logit_bias=bias))
    joined = sum(chunks[1:], start=chunks[0])
    assert isinstance(joined, AIMessageChunk)
    assert [call["name"] for call in joined.tool_calls] == ["look", "see"]
    assert joined.tool_call_chunks[0]["args"] == ARGUMENTS


def test_structured_output_by_a_call_has_the_callers_type(caller: Pupil) -> None:
    chat = chat_of(caller.server).with_structured_output(Shape, method="function_calling")
    assert isinstance(chat.invoke([HumanMessage("Go on.")]), Shape)
