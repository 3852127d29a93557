"""Honest bodies of every route, with every field that is honoured somewhere among them."""

import base64
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

Body = dict[str, Any]

MODEL = "demo_model"
_SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "minimum": 0}, "b": {"enum": ["x", 1, None]}},
    "required": ["a"],
    "additionalProperties": False,
    "$defs": {"c": {"type": "array", "items": {"$ref": "#/$defs/c"}}},
}
_FUNCTION = {"name": "look", "description": "Looks.", "parameters": _SCHEMA, "strict": True}
_SAMPLING: Body = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 5,
    "min_p": 0.1,
    "seed": 7,
    "stop": ["end", "."],
    "stop_token_ids": [5],
    "min_tokens": 1,
    "ignore_eos": True,
    "frequency_penalty": 0.5,
    "presence_penalty": -0.5,
    "repetition_penalty": 1.1,
    "logit_bias": {"7": 5, "8": -100},
}
_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"a": 1}'}}


def make_bodies(image: str, tensors: bytes) -> tuple[tuple[str, Body], ...]:
    """Pairs of a path and a body.

    Args:
        image: a data URI.
        tensors: a safetensors file.
    """
    return tuple(_bodies(image, base64.b64encode(tensors).decode()))


def _bodies(image: str, tensors: str) -> Iterator[tuple[str, Body]]:
    for body in _chats(image, tensors):
        yield "/v1/chat/completions", body
        yield "/tokenize", body | {"return_token_strs": True}
    for body in _completions():
        yield "/v1/completions", body
    for body in _responses(image):
        yield "/v1/responses", body
    yield "/tokenize", {"prompt": "words", "add_special_tokens": False}
    yield "/detokenize", {"model": MODEL, "tokens": [1, 2, 3, 760]}


def _chats(image: str, tensors: str) -> Iterator[Body]:
    shown: Body = {"type": "image_url", "image_url": {"url": image, "detail": "low"}, "uuid": "u"}
    text = {"type": "text", "text": "What is it?"}
    user = {"role": "user", "content": [shown, text], "name": "ann"}
    yield _chat([user], max_tokens=8, n=2, user="u", metadata={"a": "b"})
    yield _chat([{"role": "system", "content": "Be short."}, user, user], stream=True, **_SAMPLING)
    yield _chat(
        [{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
        logprobs=True,
        top_logprobs=2,
        max_completion_tokens=9,
    )
    given = {"type": "image_tensors", "image_tensors": {"data": tensors}, "max_pixels": 9999}
    yield _chat([{"role": "user", "content": [given, text]}])
    called = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "1"}]}
    asked = {"role": "user", "content": "again"}
    choice = {"type": "function", "function": {"name": "look"}}
    tools = [{"type": "function", "function": _FUNCTION}]
    yield _chat([asked, called, result], tools=tools, tool_choice=choice, parallel_tool_calls=False)
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": _SCHEMA, "strict": True}}
    yield _chat([asked], response_format=form, chat_template_kwargs={"enable_thinking": False})
    begun = {"role": "assistant", "content": "It is", "reasoning_content": "hm", "refusal": None}
    yield _chat([asked, begun], continue_final_message=True, add_generation_prompt=False)


def _chat(messages: list[Mapping[str, Any]], **fields: Any) -> Body:
    return {"model": MODEL, "messages": messages, **fields}


def _completions() -> Iterator[Body]:
    yield {"model": MODEL, "prompt": "Once", "echo": True, "best_of": 2, "n": 2}
    yield {"model": MODEL, "prompt": ["Once", "é"], "echo": True, "logprobs": 2, "max_tokens": 0}
    yield {"model": MODEL, "prompt": ["a", [1, 2, 3]], "stream": True, **_SAMPLING}
    yield {"model": MODEL, "prompt": [5, 6], "logprobs": 2, "max_tokens": 4, "suffix": None}


def _responses(image: str) -> Iterator[Body]:
    shown = {"type": "input_image", "image_url": image, "detail": "high"}
    said = {"role": "user", "content": [shown, {"type": "input_text", "text": "what?"}]}
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    told = {"type": "function_call_output", "call_id": "c1", "output": "1"}
    tools = [{"type": "function", **_FUNCTION}]
    yield {
        "model": MODEL,
        "input": "hi",
        "instructions": "Be kind.",
        "stream": True,
        "store": False,
    }
    yield {"model": MODEL, "input": [said], "max_output_tokens": 9, "top_logprobs": 2}
    yield {"model": MODEL, "input": [said, call, told], "tools": tools, "tool_choice": "auto"}
    text = {"format": {"type": "json_schema", "name": "n", "schema": _SCHEMA}, "verbosity": "low"}
    include = ["message.output_text.logprobs"]
    yield {"model": MODEL, "input": "hi", "text": text, "include": include, "reasoning": {}}


def names_in(bodies: tuple[tuple[str, Body], ...]) -> tuple[str, ...]:
    """What fields are called, at any depth."""
    found: set[str] = set()
    waiting: list[Any] = [body for _, body in bodies]
    while waiting:
        tree = waiting.pop()
        if isinstance(tree, Mapping):
            found.update(tree)
            waiting.extend(tree.values())
        elif isinstance(tree, list):
            waiting.extend(tree)
    return tuple(sorted(found))


def data_uri(data: bytes, chance: Random) -> str:
    """An address that holds these bytes, whatever they are."""
    kind = chance.choice(("png", "jpeg", "gif", "webp"))
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
