"""Every field of the official client's other requests is decided, as chat's are."""

from typing import Any, get_type_hints

import orjson
import pytest
from openai.types import completion_create_params as completion_params
from openai.types.responses import response_create_params as response_params
from openai.types.responses.response_input_image_param import ResponseInputImageParam
from openai.types.responses.response_text_config_param import ResponseTextConfigParam
from openai.types.shared_params.reasoning import Reasoning

from gateway.errors import BadRequest
from gateway.schemas.completions_schema import parse_completion
from gateway.schemas.responses_schema import parse_response


def names(*types: type) -> set[str]:
    return {name for each in types for name in get_type_hints(each)}


COMPLETION_HONOURED: dict[str, Any] = {
    "model": "n",
    "prompt": "b",
    "echo": True,
    "frequency_penalty": 1,
    "logit_bias": {"5": 1},
    "logprobs": 2,
    "max_tokens": 5,
    "n": 2,
    "presence_penalty": 1,
    "seed": 5,
    "stop": "x",
    "stream": True,
    "stream_options": {"include_usage": True},
    "temperature": 0.5,
    "top_p": 0.5,
}
COMPLETION_REFUSED: dict[str, tuple[Any, Any]] = {"best_of": (2, 1), "suffix": ("x", "")}
RESPONSE_HONOURED: dict[str, Any] = {
    "include": ["message.output_text.logprobs"],
    "input": "b",
    "instructions": "b",
    "max_output_tokens": 5,
    "metadata": {"a": "b"},
    "model": "n",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "low"},
    "stream": True,
    "temperature": 0.5,
    "text": {"format": {"type": "json_object"}},
    "tool_choice": "required",
    "tools": [{"type": "function", "name": "f"}],
    "top_logprobs": 2,
    "top_p": 0.5,
    "user": "u",
}
RESPONSE_HARMLESS = (
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "stream_options",
)
RESPONSE_REFUSED: dict[str, tuple[Any, Any]] = {
    "access_programs": ({"cyber": "standard"}, {}),
    "background": (True, False),
    "background_options": ({"completion_window": "2h"}, {}),
    "context_management": ([{"type": "compaction"}], []),
    "conversation": ("conv_1", None),
    "image": ({"context_compression": "enabled"}, {"context_compression": "auto"}),
    "max_tool_calls": (1, None),
    "moderation": ({"model": "m"}, None),
    "previous_response_id": ("resp_1", None),
    "prompt": ({"id": "p"}, None),
    "service_tier": ("flex", "auto"),
    "store": (True, False),
    "truncation": ("auto", "disabled"),
}


def completion(**fields: Any) -> Any:
    return parse_completion(orjson.dumps({"model": "m", "prompt": "a"} | fields))


def response(**fields: Any) -> Any:
    return parse_response(orjson.dumps({"model": "m", "input": "a"} | fields))


def test_every_field_of_completions_is_decided() -> None:
    official = names(
        completion_params.CompletionCreateParamsNonStreaming,
        completion_params.CompletionCreateParamsStreaming,
    )
    assert official == {*COMPLETION_HONOURED, *COMPLETION_REFUSED, "user"}


def test_every_field_of_responses_is_decided() -> None:
    official = names(
        response_params.ResponseCreateParamsNonStreaming,
        response_params.ResponseCreateParamsStreaming,
    )
    assert official == {*RESPONSE_HONOURED, *RESPONSE_HARMLESS, *RESPONSE_REFUSED}
    assert names(Reasoning) == {"context", "effort", "generate_summary", "mode", "summary"}
    assert names(ResponseTextConfigParam) == {"format", "verbosity"}
    assert names(ResponseInputImageParam) == {
        "detail", "file_id", "image_url", "prompt_cache_breakpoint", "type",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMPLETION_HONOURED)
def test_honoured_fields_of_completions_change_what_is_asked(name: str) -> None:
    *asked, unknown = completion(**{name: COMPLETION_HONOURED[name]})
    assert asked != list(completion()[:2])
    assert unknown == ()


@pytest.mark.parametrize("name", RESPONSE_HONOURED)
def test_honoured_fields_of_responses_change_what_is_asked(name: str) -> None:
    *asked, unknown = response(**{name: RESPONSE_HONOURED[name]})
    assert asked != list(response()[:2])
    assert unknown == set()


@pytest.mark.parametrize("name", RESPONSE_HARMLESS)
def test_harmless_fields_of_responses_change_nothing_and_are_not_told(name: str) -> None:
    assert response(**{name: {}}) == response()


@pytest.mark.parametrize("name", COMPLETION_REFUSED)
def test_what_completions_do_not_serve_is_refused_by_name(name: str) -> None:
    asks, asks_nothing = COMPLETION_REFUSED[name]
    with pytest.raises(BadRequest) as caught:
        completion(**{name: asks})
    assert caught.value.param == name
    assert completion(**{name: asks_nothing})[1:] == completion()[1:]


@pytest.mark.parametrize("name", RESPONSE_REFUSED)
def test_what_responses_do_not_serve_is_refused_by_name(name: str) -> None:
    asks, asks_nothing = RESPONSE_REFUSED[name]
    with pytest.raises(BadRequest) as caught:
        response(**{name: asks})
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert response(**{name: asks_nothing}) == response()


@pytest.mark.parametrize("name", sorted({*COMPLETION_HONOURED, "user"} - {"model", "prompt"}))
def test_null_is_absent_in_completions(name: str) -> None:
    assert completion(**{name: None}) == completion()


@pytest.mark.parametrize(
    "name", sorted({*RESPONSE_HONOURED, *RESPONSE_REFUSED} - {"model", "input"})
)
def test_null_is_absent_in_responses(name: str) -> None:
    assert response(**{name: None}) == response()
