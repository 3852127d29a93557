"""One fetch by a fetcher of its own, in a world that a test makes up."""

import ssl

import pytest

from config.settings import ImageSettings
from gateway.errors import ImageRejected
from gateway.images.fetch import Fetcher
from gateway.images.guard import Lookup
from gateway.prompts.prompt import ImageRef
from tests.gateway.network import Detour
from tests.pictures import encoded, noise

TLS = ssl.create_default_context()
PICTURE = encoded(noise(31, (58, 37)))
PUBLIC, SECOND, PRIVATE = "93.184.216.34", "2606:2800:220:1::1", "10.20.30.40"


async def fetch(
    address: str,
    *,
    lookup: Lookup | None = None,
    network: Detour | None = None,
    private: bool = False,
    domains: str = "",
    tls: ssl.SSLContext = TLS,
) -> bytes:
    limits = ImageSettings(media_allow_private=private, media_allowed_domains=domains)
    fetcher = Fetcher(limits, tls, lookup, network)
    try:
        return (await fetcher.fetch(reference(address))).data
    finally:
        await fetcher.close()


def reference(address: str) -> ImageRef:
    return ImageRef(3, "messages[0].content[2].image_url", address)


async def refused(address: str, **options: object) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        await fetch(address, **options)  # type: ignore[arg-type]
    error = caught.value
    assert (error.index, error.stage, error.status) == (3, "fetch", 400)
    return error
