"""Embeddings in arenas and feature pools: kept for the next request that shows the same image.

The gateway allots all their bytes, so it knows what lies where: a kept image is found without
asking a worker. In an arena it outlives the process that encoded it; a pool goes with its process.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.encoding.eviction import choose_victims
from gateway.encoding.lease import Lease
from gateway.observe.metrics import Metrics
from workers.families.plan import ImagePlan
from workers.messages import Region, TensorRef
from workers.ranges import Allocator, aligned


@dataclass(slots=True, eq=False)
class Entry:
    """The embeddings of one image. Owned by the store; pinned while a request needs them."""

    digest: bytes  # of the source, see `gateway.images.identity`
    plan: ImagePlan
    lease: Lease[Allocator]
    tensor: TensorRef
    identity: bytes  # digest of what the tower saw
    num_pins: int

    @property
    def owner(self) -> int:
        """The worker in whose arena or pool they lie."""
        return self.tensor.region.arena

    @property
    def region(self) -> Region:
        """Where in there."""
        return self.lease.region

    @property
    def num_bytes(self) -> int:
        """What they take up of it."""
        return aligned(self.region.num_bytes)


class EmbeddingStore:
    """All embeddings by source digest. Owned by the event loop.

    Of those that nobody has pinned, each place keeps the latest used, in at most a `share` of its
    bytes, and gives them up as soon as a request needs the room.
    """

    def __init__(self, places: Sequence[Allocator], share: float, metrics: Metrics) -> None:
        """`places`: where the embeddings of each worker belong, see `Pool.places`."""
        self._places = places
        self._share = share
        self._metrics = metrics
        self._entries: dict[bytes, Entry] = {}
        self._idle: list[OrderedDict[bytes, Entry]] = [OrderedDict() for _ in places]
        self._idle_bytes = [0] * len(places)

    @property
    def num_pins(self) -> int:
        """Pins over all entries; none when no request is in work."""
        return sum(entry.num_pins for entry in self._entries.values())

    def idle_bytes(self, owner: int) -> int:
        """Bytes of an owner's embeddings that are kept though no request needs them now."""
        return self._idle_bytes[owner]

    def place(self, owner: int) -> Allocator:
        """Where an owner's embeddings belong now."""
        return self._places[owner]

    def find(self, digest: bytes) -> Entry | None:
        """The entry of an image, not pinned yet; whoever uses it pins it before awaiting."""
        return self._entries.get(digest)

    def add(self, entry: Entry) -> None:
        """Take over an entry that has at least one pin."""
        self._entries[entry.digest] = entry

    def pin(self, entry: Entry) -> None:
        """Keep an entry where it is until it has been unpinned as often."""
        entry.num_pins += 1
        if self._idle[entry.owner].pop(entry.digest, None):
            self._idle_bytes[entry.owner] -= entry.num_bytes

    def unpin(self, entry: Entry) -> None:
        """Let go of an entry once; after the last time it is the store's to keep or to drop."""
        entry.num_pins -= 1
        if entry.num_pins == 0 and entry.lease.is_lost:
            entry.lease.release()
        elif entry.num_pins == 0:
            self._idle[entry.owner][entry.digest] = entry
            self._idle_bytes[entry.owner] += entry.num_bytes
            self._trim(entry.owner)

    def drop_lost(self, owner: int) -> None:
        """Forget an owner's embeddings that went with its process, pinned or not."""
        idle = self._idle[owner]
        for entry in [entry for entry in self._entries.values() if entry.owner == owner]:
            if entry.lease.is_lost:
                del self._entries[entry.digest]
                if idle.pop(entry.digest, None):
                    self._idle_bytes[owner] -= entry.num_bytes
                    entry.lease.release()

    def take(self, owner: int, num_bytes: int) -> Region | None:
        """Room for an owner's embeddings, at the cost of idle ones; None if that is not enough.

        Where somebody waits for room, nothing is idle, and nothing is given past the line.
        """
        place = self._places[owner]
        region = place.allocate(num_bytes)
        if region is not None or place.is_awaited or place.is_closed:
            return region
        for entry in choose_victims(self._idle[owner].values(), place, num_bytes):
            self._drop(entry)
        return place.allocate(num_bytes)

    async def wait(self, owner: int, num_bytes: int) -> Region:
        """Room for an owner's embeddings, waiting in line for it.

        Raises:
            ArenaTooSmall: it can never be had.
            MemoryGone: the owner's process ended.
        """
        place = self._places[owner]
        region = self.take(owner, num_bytes)
        if region is None and num_bytes <= place.num_bytes:
            # What is given back by others may be enough together with any of these.
            for entry in list(self._idle[owner].values()):
                self._drop(entry)
        return region or await place.reserve(num_bytes)

    def _trim(self, owner: int) -> None:
        """Drop idle entries while they exceed the limit, or somebody waits for room."""
        place = self._places[owner]
        max_bytes = int(self._share * place.num_bytes)
        while self._idle[owner] and (self._idle_bytes[owner] > max_bytes or place.is_awaited):
            self._drop(next(iter(self._idle[owner].values())))

    def _drop(self, entry: Entry) -> None:
        """Give up an idle entry."""
        del self._entries[entry.digest], self._idle[entry.owner][entry.digest]
        self._idle_bytes[entry.owner] -= entry.num_bytes
        self._metrics.embedding_evictions.inc()
        entry.lease.release()
