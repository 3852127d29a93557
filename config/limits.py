"""How much may be in work at once beside requests and bytes, and what connections may do."""

from pydantic import Field

from config.section import Section


class LimitSettings(Section):
    max_image_requests: int = Field(
        0,
        ge=0,
        description=(
            "Of the requests in work, those with images; 0: three quarters, so that text gets in."
        ),
    )
    max_queued_pixels: int = Field(
        512_000_000,
        ge=1,
        description="Pixels of images that are not encoded yet; with more, images get a 429.",
    )
    max_kv_demand: float = Field(
        64.0,
        gt=0,
        description=(
            "Tokens that prompts and answers in work may come to, as a multiple of all KV caches; "
            "more is a 429."
        ),
    )


class ClientSettings(Section):
    max_connections: int = Field(
        16_384,
        ge=1,
        description=(
            "Connections of clients at once; more get 503. At most three quarters of the files "
            "that the system lets the process open."
        ),
    )
    max_head_bytes: int = Field(
        32_768, ge=1024, description="Largest head of a request, its URL included; then 431."
    )
    head_seconds: float = Field(
        10.0,
        gt=0,
        description=(
            "Time a client gets to send the head of a request, from its first byte; then 408."
        ),
    )
    idle_seconds: float = Field(
        75.0,
        gt=0,
        description=(
            "Time a connection stays open between requests and before the first, in seconds; "
            "longer than load balancers keep theirs, which is often 60."
        ),
    )
    stalled_seconds: float = Field(
        30.0,
        gt=0,
        description="Time after which a client that does not read its answer is cut off.",
    )
