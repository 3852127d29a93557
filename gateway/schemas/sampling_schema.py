"""The fields of a request that say how tokens are chosen and when an answer ends."""

import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, FailFast, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from gateway.schemas.edge import Edge, echo

MAX_STOPS = 4
MAX_STOP_CHARS = 1024
MAX_CHOICES = 8
MAX_TOP_LOGPROBS = 20
MAX_BIASES = 1024
MAX_STOP_TOKENS = 64  # fewer than any vocabulary has, so that min_tokens leaves some to choose
_TOKEN_ID = re.compile(r"0|[1-9][0-9]{0,9}")
LEAST_REPETITION_PENALTY, MOST_REPETITION_PENALTY = 0.01, 100.0  # no logit overflows


def _wrap_stop(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _check_biases(value: Any) -> Any:
    if not isinstance(value, dict):
        raise PydanticCustomError("model_type", "input should be an object")
    if len(value) > MAX_BIASES:
        raise PydanticCustomError(
            "invalid_value",
            "there are {given} entries; the limit is {limit}",
            {"given": len(value), "limit": MAX_BIASES},
        )
    for key in value:
        if not _TOKEN_ID.fullmatch(key):
            raise PydanticCustomError(
                "invalid_value", "{given} is no token id", {"given": echo(key)}
            )
    return value


StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARS)]
_StopInput = StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS)]


class SamplingFields(Edge):
    """Fields of OpenAI's, then those that vLLM and others added to it."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)  # -1 and 0 are off
    seed: int | None = Field(None, ge=-(2**63), lt=2**63)
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: Annotated[
        tuple[StopString, ...],
        Strict(False),
        FailFast(),
        Field(max_length=MAX_STOPS),
        BeforeValidator(_wrap_stop, json_schema_input_type=_StopInput),
    ] = ()
    ignore_eos: bool = False
    stop_token_ids: Annotated[
        tuple[Annotated[int, Field(ge=0)], ...],
        Strict(False),
        FailFast(),
        Field(max_length=MAX_STOP_TOKENS),
    ] = ()
    min_tokens: int = Field(0, ge=0)
    n: int = Field(1, ge=1, le=MAX_CHOICES)
    min_p: float | None = Field(None, ge=0, le=1)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float | None = Field(
        None, ge=LEAST_REPETITION_PENALTY, le=MOST_REPETITION_PENALTY
    )
    logit_bias: Annotated[
        dict[str, Annotated[float, Field(ge=-100, le=100)]], BeforeValidator(_check_biases)
    ] = Field(default_factory=dict)
    logprobs: bool = False
    top_logprobs: int = Field(0, ge=0, le=MAX_TOP_LOGPROBS)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise PydanticCustomError(
                "invalid_value", "it needs logprobs to be true", {"field": "top_logprobs"}
            )
        most = self.max_completion_tokens or self.max_tokens
        if most is not None and self.min_tokens > most:
            raise PydanticCustomError(
                "invalid_value",
                "{given} is more than the {limit} tokens that the answer may have",
                {"given": self.min_tokens, "limit": most, "field": "min_tokens"},
            )
        return self
