"""A `TensorRef` in, the embeddings on the engine's device out, from wherever they lie."""

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from workers.arena import Arenas
from workers.families.decoder import Decoder
from workers.features import Home, MappedPool, PoolError, check_inside
from workers.messages import MapPool, PoolMapped, Region, TensorRef


class EmbeddingsLost(Exception):
    """They lie in a pool that this process has not mapped: its owner is gone."""


@dataclass(frozen=True, slots=True)
class Found:
    """One image's embeddings, in the decoder's dtype, on its device."""

    embeddings: Tensor  # of the reference's shape
    is_copied: bool  # else they are where their owner wrote them


@dataclass(frozen=True, slots=True)
class _Mapping:
    memory: MappedPool
    num_bytes: int


class EmbeddingReader:
    """Reads for one engine. Owned by it."""

    def __init__(self, decoder: Decoder, arenas: Arenas, home: Home) -> None:
        self._decoder = decoder
        self._arenas = arenas
        self._home = home
        self._mappings: dict[int, _Mapping] = {}  # by the pool's number

    def map(self, message: MapPool) -> PoolMapped:
        """Map another worker's pool."""
        pool, failure = message.pool, ""
        try:
            if self._home.pools is None:
                raise PoolError("this engine's device has no pools")
            memory = self._home.pools.open(pool.handle, pool.num_bytes)
        except PoolError as error:
            failure = f"cannot map the embeddings of worker-{message.worker}: {error}"
        else:
            self._mappings[pool.number] = _Mapping(memory, pool.num_bytes)
        return PoolMapped(number=pool.number, failure=failure)

    def drop(self, number: int) -> None:
        """Let a pool go whose owner is gone; one that was not mapped is no error."""
        mapping = self._mappings.pop(number, None)
        if mapping is not None:
            mapping.memory.close()

    def read(self, reference: TensorRef, dtype: torch.dtype) -> Found:
        """The embeddings of one image; those copied are there once `wait` has returned.

        Args:
            reference: where they lie.
            dtype: the reference's.

        Raises:
            BadRegion: the region lies outside its memory.
            EmbeddingsLost: their owner is gone.
        """
        home, region, shape = self._home, reference.region, reference.shape
        num_bytes = prod(shape) * dtype.itemsize
        if not region.pool:
            content = self._arenas.view(region)
            lying = torch.frombuffer(content, dtype=dtype, count=prod(shape)).view(shape)
            return self._found(lying, is_at_home=region.arena == home.index)
        if home.pool is not None and home.pool.number == region.pool:
            return self._found(home.pool.view(region)[:num_bytes].view(dtype).view(shape), True)
        return Found(self._copied(region, shape, dtype), is_copied=True)

    def wait(self) -> None:
        """Wait until the device has done all copies: from then on their regions are not read."""
        if self._decoder.device.type == "cuda":
            torch.cuda.current_stream(self._decoder.device).synchronize()

    def _found(self, lying: Tensor, is_at_home: bool) -> Found:
        device, dtype = self._decoder.device, self._decoder.dtype
        if is_at_home and (lying.device, lying.dtype) == (device, dtype):
            return Found(lying, is_copied=False)
        return Found(lying.to(device, dtype, copy=True), is_copied=True)

    def _copied(self, region: Region, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        mapping = self._mappings.get(region.pool)
        if mapping is None:
            raise EmbeddingsLost(f"worker-{region.arena} is gone with the image's embeddings")
        check_inside(region, mapping.num_bytes)
        own = torch.empty(shape, dtype=dtype, device=self._decoder.device)
        mapping.memory.copy(region.offset, own)
        return own.to(self._decoder.dtype)
