"""A checked `ChatRequest` in, a `Prompt` out: plain values, nothing optional, deadline set once."""

from dataclasses import dataclass

from config.settings import ImageSettings
from gateway.checkpoint import Checkpoint
from gateway.datauri import decode_data_uri, is_data_uri
from gateway.errors import BadRequest, ImageRejected
from gateway.sampling import make_sampling
from gateway.schema import ChatRequest, ImagePart, Message
from workers.messages import Sampling


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
    """Where an image comes from: an http(s) address, or the decoded bytes of a data URI.

    Without a source, `name` is the caller's own name of an image that was shown before.
    """

    index: int
    param: str  # the field that named it, for example messages[0].content[1].image_url
    source: str | bytes | None
    name: str | None = None


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
        ImageRejected: an image's address is of no kind that is served, or its base64 is wrong.
        ImageTooLarge: a data URI holds more bytes than an image may have.
    """
    parts = [
        (part, f"messages[{row}].content[{column}]")
        for row, message in enumerate(request.messages)
        for column, part in enumerate(message.parts)
        if isinstance(part, ImagePart)
    ]
    if len(parts) > limits.max_images:
        raise BadRequest(
            f"the request has {len(parts)} images; the limit is {limits.max_images}",
            param="messages",
            code="too_many_images",
        )
    return Prompt(
        request_id=request_id,
        tenant=b"",  # one for all, as long as there are no keys
        model=request.model,
        turns=_make_turns(request.messages),
        images=tuple(
            _make_image(index, part, param, limits.max_image_bytes)
            for index, (part, param) in enumerate(parts)
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
            if isinstance(part, ImagePart):
                parts.append(ImageSlot(num_images))
                num_images += 1
            else:
                parts.append(part.text)
        role = "system" if message.role == "developer" else message.role
        turns.append(Turn(role=role, parts=tuple(parts), plain=isinstance(message.content, str)))
    return tuple(turns)


def _make_image(index: int, part: ImagePart, param: str, max_bytes: int) -> ImageRef:
    if part.image_url is None:
        return ImageRef(index, f"{param}.uuid", None, part.uuid)
    param, url = f"{param}.image_url", part.image_url.url.strip()
    if is_data_uri(url):
        return ImageRef(index, param, decode_data_uri(url, index, param, max_bytes), part.uuid)
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
