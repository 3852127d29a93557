"""Pictures in, their embeddings in their places out; each distinct image is encoded once.

An image is kept from an earlier request, or in flight for another one, or takes off now. All
that a request lets take off gets its room at once: whoever held room and waited for more could
wait for another that does the same. So a request waits for room only while it holds nothing, and
it joins only flights, which have their room.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from gateway.encoding.embeddings import EmbeddingStore, Entry
from gateway.encoding.flight import OWNER_LOST, Flight, Picture, Pilot, Room
from gateway.encoding.lease import Share
from gateway.encoding.names import image_not_kept
from gateway.encoding.place import Candidate, cost, place
from gateway.encoding.room import Claim, Need, Rooms
from gateway.errors import ImageRejected, NotReady, WorkerLost
from gateway.flow import together
from gateway.observe.metrics import Metrics
from workers.pool import Pool

Pictures = Mapping[bytes, Picture]  # by source digest, the first of equal ones


class Seat:
    """One request's claim to one image's embeddings. Owned by the request's task."""

    def __init__(self, store: EmbeddingStore, picture: Picture, held: Entry | Flight) -> None:
        """`held` is an entry that was pinned, or a flight that was joined, for this seat."""
        self._store = store
        self._picture = picture
        self._held: Entry | Flight | None = held

    async def wait(self) -> Entry:
        """The embeddings, which stay in their place until `release`.

        Raises:
            ServeError: the flight failed; an image's fault names this request's image.
        """
        if isinstance(self._held, Flight):
            try:
                self._held = await asyncio.shield(self._held.landing)
            except ImageRejected as error:
                source = self._picture.source
                raise error.about(source.index, source.param) from error
        assert self._held is not None
        return self._held

    def release(self) -> None:
        """Give the claim up; twice does nothing."""
        held, self._held = self._held, None
        if isinstance(held, Flight):
            held = held.leave()
        if held is not None:
            self._store.unpin(held)


class Encoder:
    """Finds, joins or starts the encoding of images. Owned by the gateway's event loop."""

    def __init__(
        self,
        pool: Pool,
        store: EmbeddingStore,
        pilot: Pilot,
        metrics: Metrics,
    ) -> None:
        self._pool = pool
        self._store = store
        self._pilot = pilot
        self._metrics = metrics
        self._flights: dict[bytes, Flight] = {}

    @property
    def num_flights(self) -> int:
        """Images that are being encoded."""
        return len(self._flights)

    def has(self, digest: bytes) -> bool:
        """Whether an image's embeddings are kept or on their way."""
        return self._store.find(digest) is not None or digest in self._flights

    async def obtain(
        self, pictures: Sequence[Picture], request_id: str, cleanup: ExitStack
    ) -> tuple[list[Entry], Share]:
        """Have every picture's embeddings in place.

        Args:
            pictures: of one request.
            request_id: the request's.
            cleanup: gets the release of the share. What it releases from before is all that the
                request holds, and is let go before a wait for room.

        Returns:
            an entry for each picture, in order, and the share that keeps them.

        Raises:
            ServeError: an image is damaged, cannot be placed, or its owner failed.
        """
        distinct = _distinct(pictures)
        with ExitStack() as undo:
            seats = self._seats_at_once(distinct, request_id, undo)
            if seats is None:
                cleanup.close()
                seats = await self._seats_in_line(distinct, request_id, undo)
            entries = await together(seat.wait() for seat in seats.values())
            if any(entry.lease.is_lost for entry in entries):  # while others were under way
                raise WorkerLost(OWNER_LOST)
            undo.pop_all()  # the seats are the share's from now on
        share = Share(list(seats.values()))
        cleanup.callback(share.release)
        by_digest = dict(zip(seats, entries, strict=True))
        return [by_digest[picture.task.digest] for picture in pictures], share

    def _seats_at_once(
        self, pictures: Pictures, request_id: str, cleanup: ExitStack
    ) -> dict[bytes, Seat] | None:
        """A seat for each picture, or nothing at all where room is short."""
        with ExitStack() as desk:
            seats = self._known_seats(pictures, desk)
            missing = {key: picture for key, picture in pictures.items() if key not in seats}
            _refuse_named(missing)
            self._refuse_fenced(missing)
            rooms = self._take_rooms(missing) if missing else {}
            if rooms is None:
                return None
            self._count_lookups(len(pictures) - len(missing), len(missing))
            for key, picture in missing.items():
                seats[key] = self._take_off(picture, rooms[key], request_id, desk)
            cleanup.push(desk.pop_all())
        return seats

    async def _seats_in_line(
        self, pictures: Pictures, request_id: str, cleanup: ExitStack
    ) -> dict[bytes, Seat]:
        """As above, after a wait for all the room there could be need of."""
        shown = {key: picture for key, picture in pictures.items() if picture.header is not None}
        rooms = await self._wait_for_rooms(shown)
        with ExitStack() as desk:
            desk.callback(_release, rooms)
            seats = self._known_seats(pictures, desk)
            missing = {key: each for key, each in pictures.items() if key not in seats}
            _refuse_named(missing)
            self._refuse_fenced(missing)
            self._count_lookups(len(seats), len(missing))
            for key, picture in missing.items():
                seats[key] = self._take_off(picture, rooms.pop(key), request_id, desk)
            _release(rooms)  # the rest is not needed
            cleanup.push(desk.pop_all())
        return seats

    def _refuse_fenced(self, missing: Pictures) -> None:
        for picture in missing.values():
            self._pilot.check_fence(picture)

    def _known_seats(self, pictures: Pictures, desk: ExitStack) -> dict[bytes, Seat]:
        seats: dict[bytes, Seat] = {}
        for key, picture in pictures.items():
            held: Entry | Flight | None = self._store.find(key)
            if isinstance(held, Entry):
                self._store.pin(held)
            elif (held := self._flights.get(key)) is not None:
                held.join()
            if held is not None:
                seats[key] = Seat(self._store, picture, held)
                desk.callback(seats[key].release)
        return seats

    def _take_off(self, picture: Picture, room: Room, request_id: str, desk: ExitStack) -> Seat:
        worker = self._pool.fleet().workers[room.owner].name
        self._metrics.placements.labels(worker).inc()
        flight = self._flights[picture.task.digest] = Flight(
            picture, room, self._store, self._forget
        )
        seat = Seat(self._store, picture, flight)
        desk.callback(seat.release)
        flight.start(self._pilot.fly(flight, request_id))
        return seat

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.picture.task.digest) is flight:
            del self._flights[flight.picture.task.digest]

    def _take_rooms(self, pictures: Pictures) -> Rooms | None:
        rooms: Rooms = {}
        for claim in self._claims(pictures):
            taken = claim.take()
            if taken is None:
                _release(rooms)
                return None
            rooms |= taken
        return rooms

    async def _wait_for_rooms(self, pictures: Pictures) -> Rooms:
        """Owners in ascending order, so that two requests never wait for each other."""
        rooms: Rooms = {}
        with ExitStack() as undo:
            for claim in self._claims(pictures):
                with self._metrics.stage("reserve"):
                    taken = await claim.wait()
                rooms |= taken
                for room in taken.values():
                    undo.callback(room.release)
            undo.pop_all()
        return rooms

    def _claims(self, pictures: Pictures) -> list[Claim]:
        """One for each owner of the pictures, in ascending order of these.

        How busy owners are decides where images go, but not whether a request can be served.

        Raises:
            CallerError: the pictures do not fit into the owners' memory, however long one waits.
            NotReady: they do not, but an owner is missing; or there is none.
        """
        loads = self.loads()
        claims = self._placed(pictures, loads)
        if not all(claim.fits for claim in claims):
            claims = self._placed(pictures, dict.fromkeys(loads, 0.0))
            self._check_fit(claims)
        return claims

    def _check_fit(self, claims: Sequence[Claim]) -> None:
        owners = [view for view in self._pool.fleet().workers if "vision" in view.roles]
        if not all(view.ready for view in owners) and not all(claim.fits for claim in claims):
            raise NotReady("a worker whose memory the images need is starting; try again")
        for claim in claims:
            claim.check()

    def _placed(self, pictures: Pictures, loads: Mapping[int, float]) -> list[Claim]:
        with self._metrics.stage("place"):
            tasks = tuple(picture.task for picture in pictures.values())
            owners = place(tasks, self._owners(loads))
        by_owner: dict[int, list[Picture]] = {owner: [] for owner in sorted(set(owners.values()))}
        for picture in pictures.values():
            by_owner[owners[picture.task.index]].append(picture)
        return [self._claim(owner, mine) for owner, mine in by_owner.items()]

    def _owners(self, loads: Mapping[int, float]) -> tuple[Candidate, ...]:
        views = self._pool.fleet().holding("vision")
        if not views:
            raise NotReady("no worker with the role vision is ready")
        return tuple(Candidate(view.index, view.name, loads[view.index]) for view in views)

    def loads(self) -> dict[int, float]:
        """What each worker has still to encode, see `gateway.encoding.place.cost`."""
        loads = {view.index: 0.0 for view in self._pool.fleet().workers}
        for flight in self._flights.values():
            loads[flight.room.owner] += cost(flight.picture.task.plan)
        return loads

    def _claim(self, owner: int, pictures: Sequence[Picture]) -> Claim:
        per_token = self._pool.fleet().workers[owner].embedding_bytes_per_token
        if per_token == 0:
            raise NotReady("the image's owner is starting; try again")
        needs = [
            Need(
                digest=picture.task.digest,
                payload_bytes=self._pilot.payloads.num_bytes(picture),
                embedding_bytes=picture.task.plan.num_tokens * per_token,
            )
            for picture in pictures
        ]
        return Claim(owner, self._pool.arena(owner), self._store, needs)

    def _count_lookups(self, num_found: int, num_missing: int) -> None:
        self._metrics.embedding_lookups.labels("hit").inc(num_found)
        self._metrics.embedding_lookups.labels("miss").inc(num_missing)


def _distinct(pictures: Sequence[Picture]) -> Pictures:
    """The first of equal pictures, if possible one that has data."""
    distinct: dict[bytes, Picture] = {}
    for picture in pictures:
        earlier = distinct.get(picture.task.digest)
        if earlier is None or earlier.header is None:
            distinct[picture.task.digest] = picture
    return distinct


def _release(rooms: Rooms) -> None:
    while rooms:
        rooms.popitem()[1].release()


def _refuse_named(missing: Pictures) -> None:
    """Refuse images that came as a name alone and are kept no more."""
    for picture in missing.values():
        if picture.header is None:
            raise image_not_kept(picture.source.index, picture.source.param)
