"""How much may be in work at once, beside the numbers of requests and bytes."""

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
