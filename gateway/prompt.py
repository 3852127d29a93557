"""A checked `ChatRequest` in, a `Prompt` out: plain values, nothing optional, deadline set once."""

from dataclasses import dataclass
from typing import Literal

from config.settings import ImageSettings
from gateway.checkpoint import Checkpoint
from gateway.datauri import decode_base64, decode_data_uri, is_data_uri
from gateway.errors import BadRequest, ImageRejected
from gateway.sampling import make_sampling
from gateway.schema import ChatRequest, ImagePart, Message, TensorPart, TextPart
from workers.sampling import Sampling

SourceForm = Literal["file", "tensors"]  # what an image comes as


@dataclass(frozen=True, slots=True)
class ImageSlot:
    """The place of an image in a turn; `index` counts images through the whole request."""

    index: int


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. `plain` tells that its content was a string, not a list of parts."""

    role: str
    parts: tuple[str | ImageSlot, ...]
    plain: bool


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


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, parsed and trusted from here on."""

    request_id: str
    tenant: bytes  # whose request it is; nothing that is kept is shared across tenants
    model: str
    turns: tuple[Turn, ...]
    images: tuple[ImageRef, ...]
    num_choices: int
    sampling: Sampling
    stop: tuple[str, ...]
    streamed: bool
    include_usage: bool  # a usage chunk at the end of the stream
    deadline: float  # seconds on time.monotonic()


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
        BadRequest: there are more images than one request may hold, or a token id is unknown.
        ImageRejected: an image's address is of no kind that is served, its base64 is wrong, or
            it comes as tensors, which are not allowed.
        ImageTooLarge: a data URI or a file of tensors holds more bytes than it may have.
    """
    parts = [
        (part, f"messages[{row}].content[{column}]")
        for row, message in enumerate(request.messages)
        for column, part in enumerate(message.parts)
        if not isinstance(part, TextPart)
    ]
    if len(parts) > limits.max_images:
        raise BadRequest(
            f"the request has {len(parts)} images; the limit is {limits.max_images}",
            param="messages",
            code="too_many_images",
        )
    return Prompt(
        request_id=request_id,
        tenant=b"",  # the journey knows
        model=request.model,
        turns=_make_turns(request.messages),
        images=tuple(
            _make_image(index, part, param, limits) for index, (part, param) in enumerate(parts)
        ),
        num_choices=request.n,
        sampling=make_sampling(request, checkpoint.sampling_defaults, checkpoint.tokenizer),
        stop=request.stop,
        streamed=request.stream,
        include_usage=request.stream_options.include_usage is True,
        deadline=now + request_seconds,
    )


def _make_turns(messages: tuple[Message, ...]) -> tuple[Turn, ...]:
    num_images = 0
    turns: list[Turn] = []
    for message in messages:
        parts: list[str | ImageSlot] = []
        for part in message.parts:
            if isinstance(part, TextPart):
                parts.append(part.text)
            else:
                parts.append(ImageSlot(num_images))
                num_images += 1
        role = "system" if message.role == "developer" else message.role
        turns.append(Turn(role=role, parts=tuple(parts), plain=isinstance(message.content, str)))
    return tuple(turns)


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
    if is_data_uri(url):
        data = decode_data_uri(url, index, param, limits.max_image_bytes)
        return ImageRef(index, param, data, part.uuid)
    if limits.media_folder and is_file_address(url):
        return ImageRef(index, param, url, part.uuid)
    if url[:8].lower().startswith(("http://", "https://")):
        return ImageRef(index, param, url, part.uuid)
    # The same words for everything else, so that they tell nothing about local files.
    raise ImageRejected(
        "the address should be a data: URI, or start with http:// or https://",
        index=index,
        stage="fetch",
        param=param,
        code="unsupported_scheme",
    )


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
