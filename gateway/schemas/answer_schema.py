"""The bodies that are sent, as the published document and tests describe them.

Nothing is checked against these while requests are served. A field with a default may be left out.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


class Told(BaseModel):
    """Holds what is listed and nothing more."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")


class LimitHit(Told):
    name: str
    value: int
    limit: int


class ErrorFields(Told):
    message: str
    type: str
    param: str | None  # dotted path of the field to blame
    code: str  # stable
    retryable: bool  # whether the same request may go well later
    limit: LimitHit | None = None  # of a server that is full
    image_index: int = 0  # of the image to blame, counted from 0 through the request
    stage: Literal["fetch", "header", "decode", "limit", "encode"] = "fetch"


class ErrorBody(Told):
    """OpenAI's error body; of an error about an image, its index and stage as well."""

    error: ErrorFields


class PromptDetails(Told):
    cached_tokens: int
    image_tokens: int


class CompletionDetails(Told):
    reasoning_tokens: int


class UsageBody(Told):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Likely(Told):
    """A token and its likelihood; `bytes` is null for a control token."""

    token: str
    logprob: float
    bytes: list[int] | None


class LikelyChoice(Likely):
    top_logprobs: list[Likely]


class Logprobs(Told):
    content: list[LikelyChoice]
    refusal: None


class CalledFunction(Told):
    name: str
    arguments: str


class Call(Told):
    id: str
    type: Literal["function"]
    function: CalledFunction


class AnswerMessage(Told):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str = ""
    tool_calls: list[Call] = []


FinishReason = Literal["stop", "length", "tool_calls"]


class ChatChoice(Told):
    index: int
    message: AnswerMessage
    logprobs: Logprobs | None
    finish_reason: FinishReason


class ChatCompletion(Told):
    id: str
    object: Literal["chat.completion"]
    created: int  # seconds since 1970
    model: str
    choices: list[ChatChoice]
    usage: UsageBody


class DeltaFunction(Told):
    name: str = ""
    arguments: str


class DeltaCall(Told):
    """The first of a call has its id, type and name."""

    index: int
    id: str = ""
    type: Literal["function"] = "function"
    function: DeltaFunction


class DeltaBody(Told):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    reasoning_content: str = ""
    tool_calls: list[DeltaCall] = []


class ChunkChoice(Told):
    index: int
    delta: DeltaBody
    logprobs: Logprobs | None
    finish_reason: FinishReason | None


class ChatChunk(Told):
    """The data of one event; `usage` comes in the last one, where it was asked for."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: UsageBody | None = None


class OldLogprobs(Told):
    """Of an echo, those of the prompt come first; its first token has none."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]  # in characters


class TextChoice(Told):
    index: int
    text: str
    logprobs: OldLogprobs | None
    finish_reason: FinishReason | None  # null until the choice ends


class TextCompletion(Told):
    """A whole body, which has `usage`, or the data of one event."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageBody | None = None


class Counted(Told):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str | None] | None  # where they were asked for


class Spelt(Told):
    prompt: str


class ImageLimits(Told):
    """Bytes of a file, pixels and side of the picture in it, pixels that the model sees."""

    max_images: int
    max_bytes: int
    max_pixels: int
    max_side: int
    formats: list[str]
    max_resized_pixels: int
    low_detail_pixels: int
    tensors: bool  # whether they may come in place of an image


class ModelCard(Told):
    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    max_output_tokens: int
    input_modalities: list[Literal["text", "image"]]
    output_modalities: list[Literal["text"]]
    image_limits: ImageLimits


class ModelList(Told):
    object: Literal["list"]
    data: list[ModelCard]


class Health(Told):
    status: Literal["ok"]


class WorkerState(Told):
    name: str
    device: str
    roles: list[str]
    ready: bool


class Readiness(Told):
    status: Literal["ready", "not_ready", "draining"]
    workers: list[WorkerState]


class OutputText(Told):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[LikelyChoice] = []


class ReasoningText(Told):
    type: Literal["reasoning_text"]
    text: str


ItemStatus = Literal["in_progress", "completed", "incomplete"]


class MessageItem(Told):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class ReasoningItem(Told):
    id: str
    type: Literal["reasoning"]
    summary: list[Any]
    status: ItemStatus
    content: list[ReasoningText]


class CallItemBody(Told):
    id: str
    type: Literal["function_call"]
    status: ItemStatus
    call_id: str
    name: str
    arguments: str
