"""The bytes of an image in, the source's identity out: equal for equal embeddings only."""

from hashlib import blake2b

import anyio.to_thread
import msgspec
from PIL import __version__ as decoder_version

from workers.families.plan import ImagePlan

# Below this size hashing takes less time than going to a thread.
_INLINE_BYTES = 256 * 1024
# What turns a file into upright pixels; it changes when `gateway.encoding.payload` decides
# differently.
FILE = f"file 1 {decoder_version}".encode()


async def source_digest(
    data: bytes, plan: ImagePlan, tenant: bytes, key: bytes, kind: bytes = FILE
) -> bytes:
    """128 bits over everything that the embeddings depend on, keyed by a secret.

    Each part is preceded by its length, so that no two lists of parts give the same bytes.

    Args:
        data: the file as it came, or a tensor's bytes.
        plan: with the family's geometry and the size as displayed, which tells the orientation.
        tenant: whose request it is; callers never share embeddings across tenants.
        key: a secret of this process, at most 64 bytes.
        kind: what the data is and how it is read; equal bytes of other kinds are other images.
    """
    if len(data) <= _INLINE_BYTES:
        return _digest(data, plan, tenant, key, kind)
    return await anyio.to_thread.run_sync(_digest, data, plan, tenant, key, kind)


def _digest(data: bytes, plan: ImagePlan, tenant: bytes, key: bytes, kind: bytes) -> bytes:
    state = blake2b(key=key, digest_size=16, person=b"fovea source")
    for part in (tenant, kind, msgspec.msgpack.encode(plan), data):
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
