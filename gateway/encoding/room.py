"""What one owner's images need in, a `Room` for each of them out: all of it or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.encoding.embeddings import EmbeddingStore
from gateway.encoding.flight import Room
from gateway.encoding.lease import Lease
from gateway.errors import CallerError, NotReady
from workers.arena import Arena
from workers.messages import Region
from workers.ranges import Allocator, MemoryGone, aligned

Rooms = dict[bytes, Room]  # by source digest


@dataclass(frozen=True, slots=True)
class Need:
    """What one image takes up."""

    digest: bytes
    payload_bytes: int
    embedding_bytes: int


@dataclass(frozen=True, slots=True)
class Claim:
    """A request's need of one owner.

    Payloads lie in the owner's arena. Where its embeddings do too, both are cut from one region:
    two requests that each held one and waited for the other could wait for ever. Where they have
    a place of their own, everybody takes the arena first.
    """

    owner: int
    arena: Arena
    store: EmbeddingStore
    needs: Sequence[Need]

    @property
    def fits(self) -> bool:
        """Whether the rooms could be had if nobody else held any."""
        return all(num_bytes <= memory.num_bytes for memory, num_bytes in self._demands())

    def check(self) -> None:
        """Raise CallerError if the claim does not fit."""
        for memory, num_bytes in self._demands():
            if num_bytes > memory.num_bytes:
                raise CallerError(
                    "the images do not fit into memory together: "
                    f"{num_bytes} bytes are needed; the limit is {memory.num_bytes}",
                    param="messages",
                    code="images_too_large",
                )

    def take(self) -> Rooms | None:
        """The rooms, if they can be had at once; asked only where they fit.

        Else all that is kept would be given up for nothing.
        """
        place = self.store.place(self.owner)
        if place is self.arena:
            whole = self.store.take(self.owner, sum(map(aligned, self._all_bytes)))
            return None if whole is None else self._cut_whole(whole)
        payloads = self.arena.allocate(sum(map(aligned, self._payload_bytes)))
        if payloads is None:
            return None
        embeddings = self.store.take(self.owner, sum(map(aligned, self._embedding_bytes)))
        if embeddings is None:
            self.arena.free(payloads)
            return None
        return self._cut(payloads, place, embeddings)

    async def wait(self) -> Rooms:
        """The rooms, after a wait in line; asked only where they fit.

        Raises:
            NotReady: the owner's process ended.
        """
        try:
            return await self._wait()
        except MemoryGone as error:
            raise NotReady("the image's owner is starting; try again") from error

    async def _wait(self) -> Rooms:
        if self.store.place(self.owner) is self.arena:
            whole = await self.store.wait(self.owner, sum(map(aligned, self._all_bytes)))
            return self._cut_whole(whole)
        payloads = await self.arena.reserve(sum(map(aligned, self._payload_bytes)))
        try:
            place = self.store.place(self.owner)  # a new one, if the owner died meanwhile
            embeddings = await self.store.wait(self.owner, sum(map(aligned, self._embedding_bytes)))
        except BaseException:
            self.arena.free(payloads)
            raise
        return self._cut(payloads, place, embeddings)

    def _demands(self) -> list[tuple[Allocator, int]]:
        """How many bytes are needed of which memory."""
        place = self.store.place(self.owner)
        if place is self.arena:
            return [(place, sum(map(aligned, self._all_bytes)))]
        payloads, embeddings = self._payload_bytes, self._embedding_bytes
        return [(self.arena, sum(map(aligned, payloads))), (place, sum(map(aligned, embeddings)))]

    @property
    def _payload_bytes(self) -> list[int]:
        return [need.payload_bytes for need in self.needs]

    @property
    def _embedding_bytes(self) -> list[int]:
        return [need.embedding_bytes for need in self.needs]

    @property
    def _all_bytes(self) -> list[int]:
        return self._payload_bytes + self._embedding_bytes

    def _cut_whole(self, whole: Region) -> Rooms:
        parts = self.arena.split(whole, self._all_bytes)
        middle = len(self.needs)
        return self._rooms(parts[:middle], self.arena, parts[middle:])

    def _cut(self, payloads: Region, place: Allocator, embeddings: Region) -> Rooms:
        return self._rooms(
            self.arena.split(payloads, self._payload_bytes),
            place,
            place.split(embeddings, self._embedding_bytes),
        )

    def _rooms(
        self, payloads: Sequence[Region], place: Allocator, embeddings: Sequence[Region]
    ) -> Rooms:
        return {
            need.digest: Room(self.owner, Lease(self.arena, payload), Lease(place, embedding))
            for need, payload, embedding in zip(self.needs, payloads, embeddings, strict=True)
        }
