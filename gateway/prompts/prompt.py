"""A checked `ChatRequest` in, a `Prompt` out: plain values, nothing optional, deadline set once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from config.settings import ImageSettings
from gateway.errors import BadRequest, ImageRejected
from gateway.images.datauri import decode_base64, decode_data_uri, is_data_uri
from gateway.prompts.arguments import parse_arguments
from gateway.prompts.checkpoint import Checkpoint
from gateway.prompts.sampling import make_sampling
from gateway.prompts.tool_use import ToolUse, make_tool_use
from gateway.schemas.message_schema import ImagePart, Message, RefusalPart, TensorPart, TextPart
from gateway.schemas.schema import ChatRequest
from gateway.structured.grammar import Grammar, make_grammar
from workers.sampling import Sampling

SourceForm = Literal["file", "tensors"]  # what an image comes as


@dataclass(frozen=True, slots=True)
class ImageSlot:
    """The place of an image in a turn; `index` counts images through the whole request."""

    index: int


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an earlier answer; arguments that are no JSON object stay a string."""

    id: str
    name: str
    arguments: dict[str, Any] | str


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `plain` tells that its content was a string, not a list of parts."""

    role: str
    parts: tuple[str | ImageSlot, ...]
    plain: bool
    name: str | None = None  # of the participant, for templates that use it
    thoughts: str | None = None
    calls: tuple[Call, ...] = ()
    call_id: str | None = None  # of the call that a tool's turn is the result of


@dataclass(frozen=True, slots=True)
class ImageRef:
    """Where an image comes from: an address to fetch, or bytes that came with the request.

    Without a source, `name` is the caller's own name of an image that was shown before.
    """

    index: int
    param: str  # the field that named it, for example messages[0].content[1].image_url
    source: str | bytes | None
    name: str | None = None
    form: SourceForm = "file"
    max_pixels: int | None = None  # after resizing; None: as many as the checkpoint allows


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """How a conversation becomes one text."""

    opens_answer: bool = True
    continues_last: bool = False  # the text ends where the last message ends
    variables: Mapping[str, Any] = field(default_factory=dict)  # for the template


@dataclass(frozen=True, slots=True)
class RawText:
    """A prompt that is one text, control tokens included; no template touches it."""

    text: str
    add_special_tokens: bool  # those that the tokenizer sets around a text, if any


@dataclass(frozen=True, slots=True)
class RawTokens:
    """A prompt that is token ids."""

    token_ids: tuple[int, ...]


Raw = RawText | RawTokens


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, parsed and trusted from here on."""

    request_id: str
    tenant: bytes  # whose request it is; nothing that is kept is shared across tenants
    model: str
    turns: tuple[Turn, ...]
    images: tuple[ImageRef, ...]
    tool_use: ToolUse
    num_choices: int
    sampling: Sampling
    grammar: Grammar | None  # that answers follow
    stop: tuple[str, ...]
    streamed: bool
    include_usage: bool  # a usage chunk at the end of the stream
    deadline: float  # seconds on time.monotonic()
    template: TemplateUse = TemplateUse()
    raw: Raw | None = None  # in place of turns


def make_prompt(
    request: ChatRequest,
    *,
    request_id: str,
    checkpoint: Checkpoint,
    limits: ImageSettings,
    request_seconds: float,
    now: float,
) -> Prompt:
    """Fill in what the request leaves out, and number and unpack its images.

    `now` is in seconds on time.monotonic(). Decoding base64 takes some milliseconds
    per mebibyte.

    Raises:
        BadRequest: there are more images than one request may hold, a token id is unknown, or
            calls of functions are asked for that the checkpoint does not make.
        ImageRejected: an image's address is of no kind that is served, its base64 is wrong, or
            it comes as tensors, which are not allowed.
        ImageTooLarge: a data URI or a file of tensors holds more bytes than it may have.
    """
    parts = [
        (part, f"messages[{row}].content[{column}]")
        for row, message in enumerate(request.messages)
        for column, part in enumerate(message.parts)
        if isinstance(part, ImagePart | TensorPart)
    ]
    if len(parts) > limits.max_images:
        raise BadRequest(
            f"the request has {len(parts)} images; the limit is {limits.max_images}",
            param="messages",
            code="too_many_images",
        )
    tool_use = make_tool_use(request, checkpoint)
    return Prompt(
        request_id=request_id,
        tenant=b"",  # the journey knows
        model=request.model,
        turns=_make_turns(request.messages),
        images=tuple(
            _make_image(index, part, param, limits) for index, (part, param) in enumerate(parts)
        ),
        tool_use=tool_use,
        num_choices=request.n,
        sampling=make_sampling(request, checkpoint.sampling_defaults, checkpoint.tokenizer),
        grammar=make_grammar(request, tool_use, checkpoint),
        stop=request.stop,
        streamed=request.stream,
        include_usage=request.stream_options.include_usage is True,
        deadline=now + request_seconds,
        template=_make_use(request, checkpoint),
    )


def _make_use(request: ChatRequest, checkpoint: Checkpoint) -> TemplateUse:
    variables = request.chat_template_kwargs
    checkpoint.template.refuse_reserved(variables)
    return TemplateUse(request.opens_answer, request.continue_final_message, variables)


def _make_turns(messages: tuple[Message, ...]) -> tuple[Turn, ...]:
    num_images = 0
    turns: list[Turn] = []
    for message in messages:
        parts: list[str | ImageSlot] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                parts.append(part.text)
            elif isinstance(part, RefusalPart):
                parts.append(part.refusal)
            else:
                parts.append(ImageSlot(num_images))
                num_images += 1
        turns.append(_make_turn(message, tuple(parts)))
    return tuple(turns)


def _make_turn(message: Message, parts: tuple[str | ImageSlot, ...]) -> Turn:
    return Turn(
        role="system" if message.role == "developer" else message.role,
        parts=parts,
        plain=message.is_plain,
        thoughts=message.reasoning_content or None,
        calls=tuple(
            Call(call.id, call.function.name, parse_arguments(call.function.arguments))
            for call in message.tool_calls
        ),
        call_id=message.tool_call_id,
        name=message.name,
    )


def is_file_address(address: str) -> bool:
    """Whether an address names a file of this machine."""
    return address[:5].lower() == "file:"


def _make_image(
    index: int, part: ImagePart | TensorPart, param: str, limits: ImageSettings
) -> ImageRef:
    if isinstance(part, TensorPart):
        return _make_tensors(index, part, param, limits)
    if part.image_url is None:
        return ImageRef(index, f"{param}.uuid", None, part.uuid)
    param, url = f"{param}.image_url", part.image_url.url.strip()
    source: str | bytes = url
    if is_data_uri(url):
        source = decode_data_uri(url, index, param, limits.max_image_bytes)
    is_file = limits.media_folder and is_file_address(url)
    if isinstance(source, bytes) or is_file or url[:8].lower().startswith(("http://", "https://")):
        max_pixels = pixel_budget(part.image_url.detail, part.max_pixels, limits)
        return ImageRef(index, param, source, part.uuid, max_pixels=max_pixels)
    # The same words for everything else, so that they tell nothing about local files.
    raise ImageRejected(
        "the address should be a data: URI, or start with http:// or https://",
        index=index,
        stage="fetch",
        param=param,
        code="unsupported_scheme",
    )


def pixel_budget(detail: str | None, max_pixels: int | None, limits: ImageSettings) -> int | None:
    """Most pixels that an image keeps: the least of what caller and operator say."""
    low = limits.low_detail_pixels if detail == "low" else None
    budgets = [each for each in (low, max_pixels, limits.max_resized_pixels or None) if each]
    return min(budgets, default=None)


def _make_tensors(index: int, part: TensorPart, param: str, limits: ImageSettings) -> ImageRef:
    if not limits.allow_tensor_inputs:
        raise ImageRejected(
            "tensors in place of an image are not allowed on this server; send the image",
            index=index,
            stage="limit",
            param=f"{param}.type",
            code="tensors_not_allowed",
        )
    if part.image_tensors is None:
        return ImageRef(index, f"{param}.uuid", None, part.uuid, "tensors")
    param = f"{param}.image_tensors.data"
    data = decode_base64(part.image_tensors.data, index, param, limits.max_tensor_bytes)
    return ImageRef(index, param, data, part.uuid, "tensors")
