"""What one owner's images need in, a `Room` for each of them out: all of it or nothing."""

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.embeddings import EmbeddingStore
from gateway.errors import CallerError, NotReady
from gateway.flight import Room
from gateway.lease import Lease
from workers.arena import Arena
from workers.messages import Region
from workers.ranges import Allocator, ArenaTooSmall, MemoryGone, aligned

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

    def take(self) -> Rooms | None:
        """The rooms, if they can be had at once."""
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
        """The rooms, after a wait in line.

        Raises:
            CallerError: they can never be had.
            NotReady: the owner's process ended.
        """
        try:
            return await self._wait()
        except ArenaTooSmall as error:
            raise CallerError(
                f"the images do not fit into memory together: {error}",
                param="messages",
                code="images_too_large",
            ) from error
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
