"""Agents of pydantic-ai, on both routes: answers, pictures, types and a loop of calls."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import anyio
import openai
import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelSettings, NativeOutput, RunContext
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.journeys.pupils import Pupil
from tests.journeys.server import Server
from tests.pictures import draw_shape, encoded

pytestmark = pytest.mark.slow

QUESTION = "What shape is this?"
MODELS = (OpenAIChatModel, OpenAIResponsesModel)
Kind = type[OpenAIChatModel] | type[OpenAIResponsesModel]


class Shape(BaseModel):
    """A shape that is seen."""

    shape: Literal["circle", "square", "triangle"]


def picture(colour: str, shape: str, size: tuple[int, int]) -> BinaryContent:
    return BinaryContent(encoded(draw_shape(colour, shape, size)), media_type="image/png")


def with_model(server: Server, kind: Kind, work: Callable[[Model], Awaitable[Any]]) -> Any:
    """What `work` gives, done with a model whose client is closed behind it."""

    async def run() -> Any:
        url = f"{server.url}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return await work(kind(server.model, provider=OpenAIProvider(openai_client=client)))

    return anyio.run(run)


@pytest.mark.parametrize("kind", MODELS)
def test_pictures_are_answered_and_counted(demo: Server, kind: Kind) -> None:
    async def ask(model: Model) -> tuple[Any, Any]:
        agent = Agent(model)
        one = await agent.run([QUESTION, picture("red", "circle", (111, 91))])
        shapes = [picture("red", "circle", (113, 93)), picture("blue", "square", (95, 115))]
        return one, await agent.run([*shapes, QUESTION])

    one, two = with_model(demo, kind, ask)
    assert one.output == "circle"
    assert two.output in {"circle", "square"}
    assert one.usage.output_tokens == two.usage.output_tokens == 2
    assert two.usage.input_tokens > one.usage.input_tokens > 10


@pytest.mark.parametrize("kind", MODELS)
def test_a_stream_is_the_answer_in_pieces(demo: Server, kind: Kind) -> None:
    async def ask(model: Model) -> tuple[str, list[str]]:
        agent = Agent(model)
        asked = ["Describe the image.", picture("red", "circle", (117, 97))]
        whole = await agent.run(asked)
        async with agent.run_stream(asked) as stream:
            return whole.output, [piece async for piece in stream.stream_text(delta=True)]

    whole, pieces = with_model(demo, kind, ask)
    assert "".join(pieces) == whole
    assert whole


@pytest.mark.parametrize("kind", MODELS)
def test_an_answer_has_the_callers_type(demo: Server, kind: Kind) -> None:
    async def ask(model: Model) -> Any:
        agent = Agent(model, output_type=NativeOutput(Shape, strict=True))
        return (await agent.run([QUESTION, picture("green", "triangle", (119, 99))])).output

    assert isinstance(with_model(demo, kind, ask), Shape)


@pytest.mark.parametrize("kind", MODELS)
def test_an_answer_by_a_required_call_has_it_too(caller: Pupil, kind: Kind) -> None:
    async def ask(model: Model) -> Any:
        return (await Agent(model, output_type=Shape).run("Go on.")).output

    assert isinstance(with_model(caller.server, kind, ask), Shape)


@pytest.mark.parametrize("kind", MODELS)
def test_an_agent_calls_functions_and_goes_on_with_what_they_tell(
    caller: Pupil, kind: Kind
) -> None:
    looked: list[str] = []

    def look(where: str) -> str:
        looked.append(where)
        return "a fox"

    def see() -> str:
        looked.append("")
        return "nothing"

    def settings(context: RunContext[None]) -> ModelSettings:
        text = "two" if context.run_step < 2 else "plain"
        return ModelSettings(extra_body=caller.reciter.say(text))

    async def ask(model: Model) -> Any:
        return await Agent(model, tools=[look, see], model_settings=settings).run("Go on.")

    result = with_model(caller.server, kind, ask)
    assert sorted(looked) == ["", "Zürich 日本 🦊"]
    assert result.output.strip() == "No tool is needed 🦊."
    assert result.usage.requests == 2
