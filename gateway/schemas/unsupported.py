"""Unsupported fields that would change the answer: refused by name unless they ask for nothing."""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.errors import BadRequest

# Field name -> values that ask for nothing, the one to suggest first. `null` always asks for
# nothing. The first group is OpenAI's own, the second what other servers added to it.
REQUEST_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "functions": ([],),
    "function_call": ("none", "auto"),
    "audio": (),
    "modalities": (["text"],),
    "moderation": (),
    "prediction": (),
    "service_tier": ("auto", "default"),
    "store": (False,),
    "web_search_options": (),
    "reasoning_effort": ("none",),
    "verbosity": ("medium",),
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "length_penalty": (1,),
    "bad_words": ([],),
    "use_beam_search": (False,),
    "prompt_logprobs": (),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "chat_template": (),
    "documents": ([],),
    "mm_processor_kwargs": ({},),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "structured_outputs": (),
}
MESSAGE_FIELDS: Mapping[str, tuple[Any, ...]] = {
    "function_call": (),
    "audio": (),
}
STREAM_FIELDS: Mapping[str, tuple[Any, ...]] = {"include_obfuscation": (False,)}
# They change nothing in the answer, so they are taken and not looked at.
HARMLESS_FIELDS = frozenset(
    {
        "metadata",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
    }
)
# The same, inside of messages.
HARMLESS_INSIDE = frozenset({"messages[].content[].prompt_cache_breakpoint"})


def refuse_unsupported(
    fields: Mapping[str, Any], table: Mapping[str, tuple[Any, ...]], path: str = ""
) -> None:
    """Raise `BadRequest` for the first of `table`'s fields that asks for something."""
    for name, off_values in table.items():
        value = fields.get(name)
        if value is None or any(_is_same(value, off) for off in off_values):
            continue
        advice = f" or set it to {orjson.dumps(off_values[0]).decode()}" if off_values else ""
        raise BadRequest(
            f"{path}{name} is not supported here; leave it out{advice}",
            param=path + name,
            code="unsupported_parameter",
        )


def _is_same(value: Any, off: Any) -> bool:
    # In Python True equals 1; in JSON it does not.
    return isinstance(value, bool) == isinstance(off, bool) and bool(value == off)
