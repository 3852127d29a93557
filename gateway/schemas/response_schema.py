"""The body of a response of /v1/responses, as the published document describes it."""

from typing import Any, Literal

from pydantic import BaseModel

from gateway.schemas.answer_schema import CallItemBody, MessageItem, ReasoningItem, Told


class InputDetails(Told):
    cached_tokens: int
    cache_write_tokens: int
    image_tokens: int


class OutputDetails(Told):
    reasoning_tokens: int


class ResponseUsage(Told):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class ResponseError(Told):
    code: str
    message: str


class Incomplete(Told):
    reason: Literal["max_output_tokens"]


class ResponseBody(Told):
    """What was made, then what was asked for, told back."""

    id: str
    object: Literal["response"]
    created_at: int  # seconds since 1970
    completed_at: int | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseError | None
    incomplete_details: Incomplete | None
    model: str
    output: list[MessageItem | ReasoningItem | CallItemBody]
    usage: ResponseUsage | None
    background: bool
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, Any]
    service_tier: str
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: Any
    tools: list[Any]
    top_logprobs: int
    top_p: float
    truncation: str
    user: str | None


class ResponseEvent(BaseModel):
    """The data of one event of OpenAI's; its other fields go by its type."""

    type: str
    sequence_number: int
    response: ResponseBody | None = None  # of those that tell of the whole
