"""Every field of the official client's chat request is decided: honoured, harmless or refused."""

from typing import Any, get_type_hints

import orjson
import pytest
from openai.types.chat import (
    ChatCompletionAssistantMessageParam,
    ChatCompletionContentPartImageParam,
    ChatCompletionSystemMessageParam,
    ChatCompletionToolMessageParam,
    ChatCompletionUserMessageParam,
)
from openai.types.chat.chat_completion_content_part_image_param import ImageURL
from openai.types.chat.chat_completion_stream_options_param import ChatCompletionStreamOptionsParam
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from gateway.errors import BadRequest
from gateway.schemas.ignored import MAX_NAMED_FIELDS, name_ignored
from gateway.schemas.message_schema import Message
from gateway.schemas.schema import ChatRequest, parse_request
from gateway.schemas.unsupported import MESSAGE_FIELDS

USER = {"role": "user", "content": "hello"}
HONOURED: dict[str, Any] = {
    "messages": [USER],
    "model": "m",
    "frequency_penalty": 0.5,
    "logit_bias": {"5": 1},
    "logprobs": True,
    "max_completion_tokens": 5,
    "max_tokens": 5,
    "n": 2,
    "parallel_tool_calls": False,
    "presence_penalty": 0.5,
    "response_format": {"type": "json_object"},
    "seed": 5,
    "stop": ["x"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "top_logprobs": 2,
    "top_p": 0.5,
}
# They change no answer, whatever they say.
HARMLESS: dict[str, Any] = {
    "metadata": {"a": "b"},
    "prompt_cache_key": "k",
    "prompt_cache_options": {"mode": "explicit"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "u",
    "user": "u",
}
# What asks for something, and what asks for nothing.
REFUSED: dict[str, tuple[Any, Any]] = {
    "audio": ({"voice": "alloy", "format": "wav"}, None),
    "function_call": ({"name": "f"}, "auto"),
    "functions": ([{"name": "f"}], []),
    "modalities": (["text", "audio"], ["text"]),
    "moderation": ({"model": "omni-moderation-latest"}, None),
    "prediction": ({"type": "content", "content": "x"}, None),
    "reasoning_effort": ("high", "none"),
    "service_tier": ("priority", "default"),
    "store": (True, False),
    "verbosity": ("low", "medium"),
    "web_search_options": ({}, None),
}


def body(**fields: Any) -> bytes:
    return orjson.dumps({"model": "m", "messages": [USER]} | fields)


def names(*types: type) -> set[str]:
    return {name for each in types for name in get_type_hints(each)}


def test_every_field_of_the_client_is_decided_and_none_is_left_over() -> None:
    official = names(CompletionCreateParamsNonStreaming, CompletionCreateParamsStreaming)
    assert official == HONOURED.keys() | HARMLESS.keys() | REFUSED.keys()
    assert HONOURED.keys() <= ChatRequest.model_fields.keys()


def test_every_field_of_messages_and_images_is_decided() -> None:
    messages = names(
        ChatCompletionUserMessageParam,
        ChatCompletionSystemMessageParam,
        ChatCompletionAssistantMessageParam,
        ChatCompletionToolMessageParam,
    )
    honoured = {"role", "content", "name", "refusal", "tool_calls", "tool_call_id"}
    assert honoured <= Message.model_fields.keys()
    assert messages == honoured | MESSAGE_FIELDS.keys()
    image = names(ChatCompletionContentPartImageParam)
    assert image == {"type", "image_url", "prompt_cache_breakpoint"}
    assert names(ImageURL) == {"url", "detail"}
    options = names(ChatCompletionStreamOptionsParam)
    assert options == {"include_usage", "include_obfuscation"}


@pytest.mark.parametrize("name", sorted(HONOURED.keys() - {"top_logprobs"}))
def test_honoured_fields_change_what_is_asked(name: str) -> None:
    plain = parse_request(body(stop="y", model="n", messages=[USER, USER]))
    asked = {"stop": "y", "model": "n", "messages": [USER, USER]} | {name: HONOURED[name]}
    request = parse_request(body(**asked))
    assert request.unknown_fields == ()
    assert getattr(request, name) != getattr(plain, name)


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_fields_change_nothing_and_are_not_told(name: str) -> None:
    assert parse_request(body(**{name: HARMLESS[name]})) == parse_request(body())


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_served_is_refused_by_name_and_asking_for_nothing_is_not(name: str) -> None:
    asks, asks_nothing = REFUSED[name]
    with pytest.raises(BadRequest) as caught:
        parse_request(body(**{name: asks}))
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert parse_request(body(**{name: asks_nothing})) == parse_request(body())


@pytest.mark.parametrize("name", sorted({*HONOURED, *HARMLESS, *REFUSED} - {"messages", "model"}))
def test_null_is_absent(name: str) -> None:
    assert parse_request(body(**{name: None})) == parse_request(body())


def test_obfuscation_is_refused_and_its_absence_is_not() -> None:
    with pytest.raises(BadRequest) as caught:
        parse_request(body(stream_options={"include_obfuscation": True}))
    assert caught.value.param == "stream_options.include_obfuscation"
    request = parse_request(body(stream_options={"include_obfuscation": False}))
    assert request.unknown_fields == ()


def test_unknown_fields_are_named_wherever_they_stand() -> None:
    image = {"url": "https://a.test/x", "size": 5}
    parts = [
        {"type": "text", "text": "x", "cache_control": {}, "prompt_cache_breakpoint": {}},
        {"type": "image_url", "image_url": image, "weight": 1, "absent": None},
        {"type": "image_url", "image_url": image, "weight": 2},
    ]
    message = {"role": "user", "content": parts, "mood": "gay", "tool_calls": []}
    request = parse_request(
        body(messages=[message, message], wizard=1, elf=None, stream_options={"x": 1})
    )
    assert request.unknown_fields == (
        "messages[].content[].cache_control",
        "messages[].content[].image_url.size",
        "messages[].content[].weight",
        "messages[].mood",
        "stream_options.x",
        "wizard",
    )


def test_the_header_is_short_and_of_safe_letters() -> None:
    assert name_ignored(["b", "a", "b"]) == "a, b"
    assert name_ignored(["a\r\nx: y", "é", "a,b"]) == "?, a??x??y, a?b"
    many = name_ignored(f"{index:03}{'x' * 500}" for index in range(200))
    assert many.endswith(", ...")
    assert many.count(",") == MAX_NAMED_FIELDS
    assert len(many) < 8192
    assert many.isascii()
