"""The feature digest: what the tower will see of one image in, 16 keyed bytes out.

It is the image's identity in the prefix cache, so two inputs of the tower that differ in anything
must not share one, and a caller who chooses both pictures must not be able to make them.

On the CPU it is keyed BLAKE2b over the memory as it lies. On a device the data stays where it is:
it is cut into tiles, each tile is reduced by the universal hash NH, and keyed BLAKE2b finishes the
tiles' sums, a hundredth of the data, on the host. NH and its Toeplitz form with one key shifted by
two words per lane are from "UMAC: Fast and Secure Message Authentication" (Black, Halevi,
Krawczyk, Krovetz, Rogaway, CRYPTO 1999): on two different tiles of equal length, chosen without
the key, a lane of 32 bit words agrees with a chance of at most 2^-32, so four lanes agree with at
most 2^-128. Two inputs with equal frames have tiles of equal number and length; if they differ,
some tile does, and all sums agree only if that tile's do. BLAKE2b's own 128 bits add 2^-128. Of n
inputs any two share a digest with a chance below n^2 * 2^-128.
"""

from hashlib import blake2b, shake_256

import msgspec
import numpy as np
import torch
from torch import Tensor

from workers.families.plan import ImagePlan

DIGEST_BYTES = 16
TILE_WORDS = 1024  # of 32 bits
NUM_LANES = 4
LANE_SHIFT = 2  # words by which a lane's key starts after the one before

_MASK = (1 << 32) - 1


class Digester:
    """Makes feature digests under one key; keeps what it derives from the key, by device."""

    def __init__(self, key: bytes) -> None:
        """`key`: 32 secret bytes."""
        self._key = key
        self._words: dict[torch.device, Tensor] = {}

    def digest(self, features: Tensor, frame: bytes, *, in_tiles: bool) -> bytes:
        """16 bytes over the features, their shape and dtype, and the frame.

        Args:
            features: of any shape and dtype, on any device; not empty.
            frame: all else that takes part, for example `pixel_frame`.
            in_tiles: reduce on the features' device before anything moves to the host. The two
                ways give different digests, so it must depend on the device alone.
        """
        kind = (in_tiles, str(features.dtype), tuple(features.shape), frame)
        head = msgspec.msgpack.encode(kind)  # tells its own length
        hasher = blake2b(head, key=self._key, digest_size=DIGEST_BYTES)
        if in_tiles:
            words = self._words_on(features.device)
            hasher.update(tile_sums(features, words).cpu().numpy().data)
        else:
            hasher.update(_bytes_of(features).cpu().numpy().data)
        return hasher.digest()

    def _words_on(self, device: torch.device) -> Tensor:
        if device not in self._words:
            self._words[device] = torch.from_numpy(tile_key(self._key)).to(device)
        return self._words[device]


def pixel_frame(plan: ImagePlan, dtype: torch.dtype) -> bytes:
    """What besides raw patches decides the input of a tower of `dtype`: places and the table."""
    table = (plan.rescale, plan.mean, plan.std, plan.temporal_patch_size)
    return msgspec.msgpack.encode(("pixels", table, *_places(plan, dtype)))


def patch_frame(plan: ImagePlan, dtype: torch.dtype) -> bytes:
    """What besides patches that are normalised already decides the input of a tower of `dtype`."""
    return msgspec.msgpack.encode(("patches", *_places(plan, dtype)))


def embedding_frame(plan: ImagePlan) -> bytes:
    """What besides the embeddings themselves decides how an image is read."""
    return msgspec.msgpack.encode(("embeddings", plan.grid, plan.merge_size))


def _places(plan: ImagePlan, dtype: torch.dtype) -> tuple[object, ...]:
    return (plan.grid, plan.patch_order, plan.merge_size, plan.num_tokens, str(dtype))


def tile_key(key: bytes) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """The words of all lanes' keys: int32 [TILE_WORDS + LANE_SHIFT * (NUM_LANES - 1)]."""
    num_words = TILE_WORDS + LANE_SHIFT * (NUM_LANES - 1)
    stream = shake_256(b"fovea feature digest tiles" + key).digest(4 * num_words)
    return np.frombuffer(stream, dtype="<i4").astype(np.int32)


def tile_sums(features: Tensor, key: Tensor) -> Tensor:
    """NH of each tile of TILE_WORDS words, the last filled up with zeros.

    Args:
        features: of any shape and dtype.
        key: `tile_key` on the same device.

    Returns:
        int64 [tiles, NUM_LANES]: the sum over pairs of words of
        ((m[2i] + k[2i]) mod 2^32) * ((m[2i+1] + k[2i+1]) mod 2^32), mod 2^64.
    """
    data = _bytes_of(features)
    data = torch.nn.functional.pad(data, (0, -len(data) % (4 * TILE_WORDS)))
    if data.storage_offset() % 4:
        data = data.clone()  # words are read where they are aligned only
    tiles = data.view(torch.int32).view(-1, TILE_WORDS)
    return torch.stack([_lane(tiles, key, lane) for lane in range(NUM_LANES)], dim=1)


def _lane(tiles: Tensor, key: Tensor, lane: int) -> Tensor:
    start = lane * LANE_SHIFT
    sums = tiles + key[start : start + TILE_WORDS]  # wraps
    even, odd = (sums.view(-1, TILE_WORDS // 2, 2).long() & _MASK).unbind(dim=2)
    return (even * odd).sum(dim=1)  # wraps; the bits are those of unsigned numbers


def _bytes_of(features: Tensor) -> Tensor:
    return features.contiguous().view(-1).view(torch.uint8)
