"""One image on its way to its embeddings: decoded, handed to its owner, landed in the store."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from gateway.encoding.embeddings import EmbeddingStore, Entry
from gateway.encoding.lease import Lease
from gateway.encoding.place import ImageTask
from gateway.errors import BadRequest, ImageRejected, WorkerLost
from gateway.images.decode_pool import DecodePool
from gateway.images.fetch import SourceImage
from gateway.images.header import ImageHeader
from gateway.images.tensors import INVALID_TENSORS, TensorHeader
from gateway.jobs.dispatch import Dispatcher, Undecoded
from gateway.observe.metrics import Metrics
from gateway.observe.timeline import Pass, current_timeline
from workers.arena import Arena
from workers.messages import Encoded, EncodeJob, Payload, Region, TensorRef
from workers.ranges import Allocator

OWNER_LOST = "the worker that held the image's embeddings is gone; try again"


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a request, with what its header told."""

    source: SourceImage
    header: ImageHeader | TensorHeader | None  # None: there is no data, for it was only named
    task: ImageTask


@dataclass(frozen=True, slots=True)
class Room:
    """Where one image's payload lies and where its embeddings go."""

    owner: int
    payload: Lease[Arena]
    embeddings: Lease[Allocator]

    @property
    def loss(self) -> WorkerLost | None:
        """What to say if the embeddings' place went with the owner's process."""
        return WorkerLost(OWNER_LOST) if self.embeddings.is_lost else None

    def release(self) -> None:
        """Give both back."""
        self.payload.release()
        self.embeddings.release()


# The bytes of a payload, and what makes the payload once they lie in a region.
Made = tuple[bytes, Callable[[Region], Payload]]


class Payloads(Protocol):
    """In which form images travel to their owners."""

    def num_bytes(self, picture: Picture) -> int:
        """Room for whatever `make` may give for the picture."""
        ...

    def make(self, picture: Picture, *, decoded: bool) -> Made:
        """Blocking; `Made` says what comes of it.

        `decoded` rules out what the owner would have to decode.

        Raises:
            ImageRejected: the pixel data is damaged or incomplete.
        """
        ...


class Flight:
    """Encodes one image for all requests that want it. Owned by the event loop.

    It belongs to none of them: it goes on as long as any has a seat, and ends with the last.
    """

    def __init__(
        self,
        picture: Picture,
        room: Room,
        store: EmbeddingStore,
        forget: Callable[["Flight"], None],
    ) -> None:
        """One seat is taken. `forget` is called when nobody can join any more, perhaps twice."""
        self.picture = picture
        self.room = room
        self.landing: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        self._store = store
        self._forget = forget
        self._num_seats = 1
        self._way: asyncio.Task[Encoded] | None = None

    def start(self, way: Coroutine[Any, Any, Encoded]) -> None:
        """Take off; called once."""
        self._way = asyncio.create_task(way)
        # Not in the coroutine, which never runs when it is cancelled before its first step.
        self._way.add_done_callback(self._end)

    def join(self) -> None:
        """Take a seat."""
        self._num_seats += 1

    def leave(self) -> Entry | None:
        """Give a seat up; after landing, the entry that was pinned for it."""
        if self.landing.done():
            has_failed = self.landing.cancelled() or self.landing.exception() is not None
            return None if has_failed else self.landing.result()
        self._num_seats -= 1
        if self._num_seats == 0 and self._way is not None:
            self._forget(self)
            self._way.cancel()
        return None

    def _end(self, way: asyncio.Task[Encoded]) -> None:
        self._forget(self)
        self.room.payload.release()
        if way.cancelled():
            self.room.embeddings.release()
            self.landing.cancel()
        elif (error := way.exception() or self.room.loss) is not None:
            self.room.embeddings.release()
            # Both lead to frames that hold this flight; see `gateway.exchange`.
            error.__traceback__ = self._way = None
            self.landing.set_exception(error)
            self.landing.exception()  # whoever had a seat may be gone
        else:
            self._land(way.result())

    def _land(self, encoded: Encoded) -> None:
        entry = self._store.find(self.picture.task.digest)
        if entry is None:
            entry = self._new_entry(encoded)
            self._store.add(entry)
        else:  # an earlier flight landed after all, though everybody had left it
            self.room.embeddings.release()
            self._store.pin(entry)
        for _ in range(self._num_seats):
            self._store.pin(entry)
        self.landing.set_result(entry)
        self._store.unpin(entry)

    def _new_entry(self, encoded: Encoded) -> Entry:
        task, lease = self.picture.task, self.room.embeddings
        return Entry(
            digest=task.digest,
            plan=task.plan,
            lease=lease,
            tensor=TensorRef(lease.region, encoded.dtype, encoded.shape),
            identity=encoded.feature_digest,
            num_pins=1,
        )


class Pilot:
    """Flies images to their owners. Owned by the event loop; one for all flights."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        decode_pool: DecodePool,
        payloads: Payloads,
        metrics: Metrics,
        request_seconds: float,
    ) -> None:
        """`request_seconds` is the time limit of a request."""
        self.payloads = payloads
        self._dispatcher = dispatcher
        self._decode_pool = decode_pool
        self._metrics = metrics
        # Whoever joins a flight at the end of its first request's time has as much time again.
        self._limit_seconds = 2 * request_seconds

    def check_fence(self, picture: Picture) -> None:
        """Raise ImageFenced if workers died of the image lately."""
        source = picture.source
        self._dispatcher.fence.check_image(picture.task.digest, source.index, source.param)

    async def fly(self, flight: Flight, request_id: str) -> Encoded:
        """Decode the image in its request's turn, and have its owner encode it.

        Raises:
            ImageRejected: the image is damaged, or its tensors are not what the tower gives.
            ServeError: the owner failed.
        """
        deadline = time.monotonic() + self._limit_seconds
        try:
            return await self._try(flight, request_id, deadline, decoded=False)
        except Undecoded:
            return await self._try(flight, request_id, deadline, decoded=True)

    async def _try(
        self, flight: Flight, request_id: str, deadline: float, *, decoded: bool
    ) -> Encoded:
        picture, room = flight.picture, flight.room
        make = partial(self._make, picture, decoded=decoded)
        data, payload_of = await self._decode_pool.run(request_id, make, time.monotonic())
        whole = room.payload.region
        region = Region(whole.arena, whole.offset, len(data))
        if room.loss is not None:  # while the image was decoded
            raise room.loss
        room.payload.arena.view(region)[:] = data
        payload = payload_of(region)
        self._metrics.payloads.labels(type(payload).__name__).inc()
        self._metrics.payload_bytes.labels(type(payload).__name__).inc(len(data))
        job = EncodeJob(
            job_id=f"{request_id}/{picture.task.index}",
            plan=picture.task.plan,
            payload=payload,
            target=room.embeddings.region,
            seconds_left=deadline - time.monotonic(),
        )
        with _blame(picture.source):
            leases = (room.payload, room.embeddings)
            try:
                return await self._dispatcher.encode(room.owner, job, leases, picture.task.digest)
            except WorkerLost:
                self.check_fence(picture)
                raise

    def _make(self, picture: Picture, asked_at: float, *, decoded: bool) -> Made:
        """In a thread of the pool; the time before counts as waiting."""
        waited = Pass("decode_wait", time.monotonic() - asked_at)
        self._metrics.observe(waited, current_timeline())
        with self._metrics.stage("decode"):
            return self.payloads.make(picture, decoded=decoded)


@contextmanager
def _blame(image: SourceImage) -> Iterator[None]:
    """Say which image it was that an owner could not take; only callers' tensors can be so."""
    try:
        yield
    except BadRequest as error:
        raise ImageRejected(
            error.message,
            index=image.index,
            stage="encode",
            param=image.param,
            code=INVALID_TENSORS,
        ) from error
