"""Encoded image bytes in, the source's identity out: decides which owner an image prefers."""

from hashlib import blake2b

import anyio.to_thread

from gateway.fetch import SourceImage

# Below this size hashing takes less time than going to a thread.
_INLINE_BYTES = 256 * 1024


async def source_digest(image: SourceImage, key: bytes) -> bytes:
    """128 bits over the encoded bytes, keyed by a secret of this process (at most 64 bytes)."""
    if len(image.data) <= _INLINE_BYTES:
        return _digest(image.data, key)
    return await anyio.to_thread.run_sync(_digest, image.data, key)


def _digest(data: bytes, key: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=16).digest()
