"""A checked `ChatRequest` in, a `Prompt` out: plain values, nothing optional, deadline set once."""

from dataclasses import dataclass

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
    """Where an image comes from: an http(s) address, or the decoded bytes of a data URI."""

    index: int
    param: str  # the field that named it, for example messages[0].content[1].image_url
    source: str | bytes


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request, parsed and trusted from here on."""

    request_id: str
    model: str
    turns: tuple[Turn, ...]
    images: tuple[ImageRef, ...]
    sampling: Sampling
    stop: tuple[str, ...]
    streamed: bool
    include_usage: bool  # a usage chunk at the end of the stream
    deadline: float  # seconds on time.monotonic()


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """What a checkpoint says of sampling, for callers who do not say."""

    temperature: float
    top_p: float
    top_k: int
    eos_token_ids: tuple[int, ...]
