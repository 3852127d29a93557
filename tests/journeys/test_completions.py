"""Completions of texts and token ids, held to what chat answers to the same prompt."""

import json
from typing import Any

import anyio
import jsonschema
import openai
import pytest
from openai.types import Completion
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from tests.journeys.server import Server
from tests.schemas import AGE, COLOUR, record

pytestmark = pytest.mark.slow

TOKENIZER = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
UNKEPT = {
    "type": "json_schema",
    "json_schema": {"name": "it", "schema": {"not": {"const": 1}}},
}
QUESTIONS = ("What can you do?", "Hello!", "Who are you, and what do you know?")


def written(question: str) -> str:
    """The prompt that the demo model's template makes of a question."""
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def chat(server: Server, question: str, **options: Any) -> Any:
    return server.client.chat.completions.create(
        model=server.model, messages=[{"role": "user", "content": question}], **options
    )


def complete(server: Server, prompt: Any, **options: Any) -> Any:
    return server.client.completions.create(model=server.model, prompt=prompt, **options)


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_text_and_its_tokens_are_answered_as_in_chat(demo: Server, question: str) -> None:
    expected = chat(demo, question, max_tokens=40)
    text = complete(demo, written(question), max_tokens=40)
    ids = complete(demo, TOKENIZER.encode(written(question)).ids, max_tokens=40)
    for answer in (text, ids):
        assert isinstance(answer, Completion)
        assert (answer.object, answer.model) == ("text_completion", demo.model)
        assert answer.choices[0].text == expected.choices[0].message.content != ""
        assert answer.choices[0].finish_reason == expected.choices[0].finish_reason
        assert answer.usage is not None
        assert answer.usage.prompt_tokens == expected.usage.prompt_tokens
        assert answer.usage.completion_tokens == expected.usage.completion_tokens


def test_several_prompts_have_their_choices_in_order(demo: Server) -> None:
    prompts = [written(question) for question in QUESTIONS]
    options = {"max_tokens": 12, "temperature": 1.2, "seed": 5, "n": 2}
    together = complete(demo, prompts, **options)
    alone = [complete(demo, prompt, **options) for prompt in prompts]
    assert [choice.index for choice in together.choices] == list(range(6))
    assert [choice.text for choice in together.choices] == [
        choice.text for answer in alone for choice in answer.choices
    ]
    assert together.usage is not None
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        assert getattr(together.usage, name) == sum(getattr(one.usage, name) for one in alone)
    ids = [TOKENIZER.encode(prompt).ids for prompt in prompts]
    assert [choice.text for choice in complete(demo, ids, **options).choices] == [
        choice.text for choice in together.choices
    ]


def test_sixteen_tokens_come_where_none_are_asked_for(demo: Server) -> None:
    answer = complete(demo, written(QUESTIONS[2]), extra_body={"ignore_eos": True})
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_a_stream_is_the_answer_cut_up(demo: Server) -> None:
    prompts = [written(question) for question in QUESTIONS]
    options: dict[str, Any] = {"max_tokens": 14, "n": 2, "seed": 3, "temperature": 1, "echo": True}
    whole = complete(demo, prompts, **options)
    chunks = list(complete(demo, prompts, stream=True, **options))
    texts, reasons = [""] * 6, [None] * 6
    for chunk in chunks:
        assert (chunk.id, chunk.object) == (chunks[0].id, "text_completion")
        assert chunk.usage is None
        for choice in chunk.choices:
            texts[choice.index] += choice.text
            assert reasons[choice.index] is None
            reasons[choice.index] = choice.finish_reason
    assert texts == [choice.text for choice in whole.choices]
    assert reasons == [choice.finish_reason for choice in whole.choices]
    assert all(text.startswith(prompts[index // 2]) for index, text in enumerate(texts))
    assert len(chunks) > 20


def test_the_async_client_streams_too_and_gets_usage_where_it_asks(demo: Server) -> None:
    async def run() -> list[Any]:
        async with demo.async_client() as client:
            stream = await client.completions.create(
                model=demo.model,
                prompt=written("Hello!"),
                stream=True,
                stream_options={"include_usage": True},
            )
            return [chunk async for chunk in stream]

    chunks = anyio.run(run)
    whole = complete(demo, written("Hello!"))
    assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == (
        whole.choices[0].text
    )
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens


def test_an_echo_of_tokens_is_what_they_say(demo: Server) -> None:
    prompt = written("Hello!")
    answer = complete(demo, TOKENIZER.encode(prompt).ids, echo=True, max_tokens=1)
    assert answer.choices[0].text.startswith(prompt)


def test_likelihoods_have_the_older_form_and_the_numbers_of_chat(demo: Server) -> None:
    expected = chat(demo, "Hello!", max_tokens=12, logprobs=True, top_logprobs=3)
    entries = expected.choices[0].logprobs.content
    answer = complete(demo, written("Hello!"), max_tokens=12, logprobs=3)
    log = answer.choices[0].logprobs
    assert log.tokens == [entry.token for entry in entries]
    assert log.token_logprobs == pytest.approx([entry.logprob for entry in entries], abs=1e-4)
    for told, entry in zip(log.top_logprobs, entries, strict=True):
        assert told == pytest.approx(
            {each.token: each.logprob for each in (*entry.top_logprobs, entry)}, abs=1e-4
        )
    text = answer.choices[0].text
    for token, start in zip(log.tokens, log.text_offset, strict=True):
        assert text[start : start + len(token)] == token
    bare = complete(demo, written("Hello!"), max_tokens=12, logprobs=0).choices[0].logprobs
    assert [list(told) for told in bare.top_logprobs] == [[token] for token in log.tokens]
    assert complete(demo, written("Hello!"), max_tokens=2).choices[0].logprobs is None


def test_stop_strings_end_a_completion(demo: Server) -> None:
    whole = complete(demo, written(QUESTIONS[0]), max_tokens=40).choices[0].text
    word = whole.split()[2]
    stopped = complete(demo, written(QUESTIONS[0]), max_tokens=40, stop=word).choices[0]
    assert stopped.text == whole.split(word)[0]
    assert stopped.finish_reason == "stop"


@pytest.mark.parametrize("prompt", [written("Hello!"), [5, 6, 7]])
@pytest.mark.parametrize("strict", [True, None])
def test_a_completion_has_the_form_that_is_asked_for(
    demo: Server, prompt: Any, strict: bool | None
) -> None:
    schema = record(age=AGE, colour=COLOUR)
    form = {
        "type": "json_schema",
        "json_schema": {"name": "it", "schema": schema, "strict": strict},
    }
    options = {"temperature": 1, "seed": 4, "n": 2, "max_tokens": 200}
    whole = complete(demo, prompt, **options, extra_body={"response_format": form})
    for choice in whole.choices:
        jsonschema.validate(json.loads(choice.text), schema)
    chunks = complete(demo, prompt, **options, stream=True, extra_body={"response_format": form})
    texts = ["", ""]
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == [choice.text for choice in whole.choices]


def test_any_object_can_be_asked_of_several_prompts(demo: Server) -> None:
    body = {"response_format": {"type": "json_object"}}
    bias = {str(TOKENIZER.encode("}").ids[0]): 50}  # so that it comes to an end
    answer = complete(demo, ["a", "b"], max_tokens=200, echo=True, logit_bias=bias, extra_body=body)
    for prompt, choice in zip("ab", answer.choices, strict=True):
        assert choice.text.startswith(prompt)
        assert isinstance(json.loads(choice.text[1:]), dict)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": ["a", ""]}, "prompt"),
    ({"prompt": ["a", 5]}, "prompt[1]"),
    ({"prompt": [5, "a"]}, "prompt[1]"),
    ({"prompt": [5, True]}, "prompt[1]"),
    ({"prompt": [[5], []]}, "prompt[1]"),
    ({"prompt": [5, 99999]}, "prompt[1]"),
    ({"prompt": [[5], [5, 2**40]]}, "prompt[1][1]"),
    ({"prompt": [5, -1]}, "prompt[1]"),
    ({"prompt": ["a"] * 65}, "prompt"),
    ({"prompt": ["a"] * 17, "n": 8}, "prompt"),
    ({"n": 9}, "n"),
    ({"suffix": "b"}, "suffix"),
    ({"best_of": 3}, "best_of"),
    ({"best_of": 1, "n": 2}, "best_of"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"logprobs": 21}, "logprobs"),
    ({"logprobs": True}, "logprobs"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"min_tokens": 17}, "min_tokens"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options.include_obfuscation"),
    ({"tools": [{}]}, "tools"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"response_format": UNKEPT}, "response_format.json_schema.schema"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG, ids=[str(fields)[:40] for fields, _ in WRONG])
def test_what_is_wrong_is_named(demo: Server, fields: dict[str, Any], param: str) -> None:
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            complete(demo, "a", extra_body={"stream": stream} | fields)
        assert caught.value.param == param
        assert param in caught.value.message or param == "prompt"


def test_placeholders_without_images_are_refused_with_both_counts(demo: Server) -> None:
    text = "<|vision_start|><|image_pad|><|vision_end|>" * 3
    for prompt in (text, TOKENIZER.encode(text).ids):
        with pytest.raises(openai.BadRequestError, match="3 image placeholders and 0 images"):
            complete(demo, prompt)


def test_a_prompt_that_does_not_fit_is_refused_with_the_numbers(demo: Server) -> None:
    with pytest.raises(openai.BadRequestError, match=r"3000 tokens.*2048") as caught:
        complete(demo, [5] * 3000)
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")


def test_another_model_is_not_found(demo: Server) -> None:
    with pytest.raises(openai.NotFoundError):
        demo.client.completions.create(model="other", prompt="a")


def test_harmless_and_unknown_fields_are_taken_and_unknown_ones_named(demo: Server) -> None:
    harmless = {"user": "u", "best_of": 1, "suffix": "", "seed": None}
    raw = demo.client.completions.with_raw_response.create(
        model=demo.model, prompt="a", max_tokens=1, extra_body=harmless | {"wizard": 1}
    )
    assert raw.headers["x-fovea-ignored-fields"] == "wizard"
