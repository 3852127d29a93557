"""The fields of a chat request that say how the checkpoint's chat template is used."""

from typing import Annotated, Any, Self

import orjson
from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.schemas.edge import Edge

MAX_VARIABLES = 32
MAX_VARIABLES_BYTES = 16_384
MAX_VARIABLES_DEPTH = 8


def _check_variables(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("model_type", "input should be an object")
    if len(value) > MAX_VARIABLES:
        raise _too_much("{given} entries", len(value), MAX_VARIABLES)
    depth = _depth(value)
    if depth > MAX_VARIABLES_DEPTH:
        raise _too_much("{given} lists and objects inside each other", depth, MAX_VARIABLES_DEPTH)
    num_bytes = len(orjson.dumps(value))
    if num_bytes > MAX_VARIABLES_BYTES:
        raise _too_much("{given} bytes of JSON", num_bytes, MAX_VARIABLES_BYTES)
    return value


def _too_much(what: str, given: int, limit: int) -> PydanticCustomError:
    return PydanticCustomError(
        "invalid_value",
        f"it has {what}; the limit is {{limit}}",
        {"given": given, "limit": limit},
    )


def _depth(value: Any, above: int = 0) -> int:
    """How deep lists and objects lie in each other; no deeper than is looked at."""
    if not isinstance(value, dict | list) or above > MAX_VARIABLES_DEPTH:
        return above
    items = value.values() if isinstance(value, dict) else value
    return max((_depth(item, above + 1) for item in items), default=above + 1)


class TemplateFields(Edge):
    """What vLLM and others added to OpenAI's fields; the words are those of transformers."""

    add_generation_prompt: bool | None = None  # the template opens the answer
    continue_final_message: bool = False  # the answer goes on where the last message ends
    chat_template_kwargs: Annotated[dict[str, Any], BeforeValidator(_check_variables)] = Field(
        default_factory=dict
    )

    @model_validator(mode="after")
    def _check_ends(self) -> Self:
        if self.continue_final_message and self.add_generation_prompt:
            raise PydanticCustomError(
                "invalid_value",
                "it needs add_generation_prompt to be false",
                {"field": "continue_final_message"},
            )
        return self

    @property
    def opens_answer(self) -> bool:
        """Whether the template opens an answer of its own; true unless something is said."""
        if self.add_generation_prompt is None:
            return not self.continue_final_message
        return self.add_generation_prompt
