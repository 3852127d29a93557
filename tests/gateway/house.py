"""An encoder with everything real around it but the workers."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

from gateway.encoding.embeddings import EmbeddingStore, Entry
from gateway.encoding.encode import Encoder
from gateway.encoding.flight import Picture, Pilot
from gateway.encoding.place import ImageTask
from gateway.errors import ImageRejected
from gateway.images.decode_pool import DecodePool
from gateway.images.fetch import SourceImage
from gateway.images.header import ImageHeader
from gateway.jobs.dispatch import Dispatcher
from gateway.observe.metrics import Metrics
from tests.plans import make_plan
from workers.arena import Arena
from workers.fail_kind import FailKind
from workers.keeper import WorkerView
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Failed,
    GenerateJob,
    Payload,
    Pixels,
    Region,
)
from workers.pool import Fleet, Pool
from workers.ranges import Allocator

PER_TOKEN = 64  # bytes of embeddings
UNIT = 64  # bytes
REQUEST_SECONDS = 60.0
HEADER = ImageHeader(  # nothing looks at it here
    format="PNG",
    width=9,
    height=9,
    orientation=1,
    has_alpha=False,
    num_frames=1,
    mode="RGB",
    is_plain_jpeg=False,
)


@dataclass
class Owners:
    """Two owners and an engine: a pool that answers when it is told to."""

    arenas: tuple[Arena, ...]
    places: list[Allocator]  # of embeddings, by worker
    sent: list[tuple[int, EncodeJob]] = field(default_factory=list)
    asked: list[GenerateJob] = field(default_factory=list)  # of the engine
    aborted: list[str] = field(default_factory=list)
    missing: set[int] = field(default_factory=set)  # workers that are not ready

    def fleet(self) -> Fleet:
        roles = (("vision",), ("vision",), ("language",))
        return Fleet(
            tuple(
                WorkerView(
                    index=index,
                    name=f"worker-{index}",
                    device="cpu",
                    roles=held,
                    ready=index not in self.missing,
                    in_flight=0,
                    embedding_bytes_per_token=PER_TOKEN,
                    max_context_tokens=100,
                    kv_cache_tokens=1000,
                    load_seconds=0.0,
                )
                for index, held in enumerate(roles)
            )
        )

    def arena(self, index: int) -> Arena:
        return self.arenas[index]

    def send(self, index: int, message: EncodeJob | GenerateJob | Abort) -> None:
        if isinstance(message, Abort):
            self.aborted.append(message.job_id)
        elif isinstance(message, GenerateJob):
            self.asked.append(message)
        else:
            self.sent.append((index, message))


class RawBytes:
    """Payloads that are the file itself; a file that begins with 'bad' is damaged."""

    def __init__(self) -> None:
        self.num_made = 0
        self.gate = threading.Event()  # nothing is made while it is cleared
        self.gate.set()

    def num_bytes(self, picture: Picture) -> int:
        return len(picture.source.data)

    def make(self, picture: Picture, *, decoded: bool) -> tuple[bytes, Callable[[Region], Payload]]:
        self.num_made += 1
        assert self.gate.wait(5)
        source = picture.source
        if source.data.startswith(b"bad"):
            raise ImageRejected("damaged", index=source.index, stage="decode", param=source.param)
        stage: Any = "resized" if decoded else "source"
        return source.data, lambda region: Pixels(region, 1, 1, 3, stage)


class House:
    """An encoder with everything real around it but the workers."""

    def __init__(self, num_units: int = 64, share: float = 0.5, pool_units: int = 0) -> None:
        """With `pool_units`, embeddings lie in pools, which `die` takes away."""
        self._pool_bytes = pool_units * UNIT
        self._contents: dict[int, bytearray] = {}  # of pools, by number
        arenas = tuple(Arena(index, num_units * UNIT) for index in range(3))
        places = [self._new_pool(index) for index in range(3)] if self._pool_bytes else arenas
        self.owners = Owners(arenas, list(places))
        self.metrics = metrics = Metrics()
        pool = cast("Pool", self.owners)
        self.dispatcher = Dispatcher(pool, metrics, fence_seconds=0)  # deaths here are by chance
        self.store = EmbeddingStore(self.owners.places, share, metrics)
        self.payloads = RawBytes()
        pilot = Pilot(self.dispatcher, DecodePool(1), self.payloads, metrics, REQUEST_SECONDS)
        self.encoder = Encoder(pool, self.store, pilot, metrics)

    async def until_sent(self, num_jobs: int) -> list[tuple[int, EncodeJob]]:
        await until(lambda: len(self.owners.sent) >= num_jobs)
        return self.owners.sent

    def land(self, *which: int) -> None:
        """Let the jobs of these places in `sent` succeed; each has its own embeddings."""
        for place in which:
            worker, job = self.owners.sent[place]
            data = bytes(self.owners.arenas[worker].view(payload_region(job)))
            view = self.view(job.target)
            view[:] = data.ljust(len(view), b"\0")
            self.dispatcher.on_event(worker, encoded(job, data))

    def fail(self, place: int, kind: FailKind) -> None:
        worker, job = self.owners.sent[place]
        self.dispatcher.on_event(worker, Failed(job_id=job.job_id, kind=kind, message="why"))
        if kind == "lost":
            self.dispatcher.on_lost(worker)

    def data_of(self, entry: Entry) -> bytes:
        return bytes(self.view(entry.tensor.region)).rstrip(b"\0")

    def view(self, region: Region) -> memoryview:
        """Where embeddings lie."""
        if not region.pool:
            return self.owners.arenas[region.arena].view(region)
        assert self.owners.places[region.arena].pool == region.pool, "a pool that is gone"
        whole = memoryview(self._contents[region.pool])
        return whole[region.offset : region.offset + region.num_bytes]

    def die(self, owner: int) -> None:
        """End an owner's process, as the pool tells of it, and start another."""
        for worker, job in self.owners.sent:
            if worker == owner:
                self.dispatcher.on_event(worker, Failed(job_id=job.job_id, kind="lost", message=""))
        self.dispatcher.on_lost(owner)
        self.owners.places[owner].close()
        self.store.drop_lost(owner)
        self.owners.places[owner] = self._new_pool(owner)

    def _new_pool(self, owner: int) -> Allocator:
        number = len(self._contents) + 1
        self._contents[number] = bytearray(self._pool_bytes)
        return Allocator(owner, self._pool_bytes, number)

    def check_idle(self) -> None:
        """Nothing is in work: only what the store keeps takes room."""
        assert self.encoder.num_flights == 0
        assert self.dispatcher.num_jobs == 0
        assert self.store.num_pins == 0
        for place in self.owners.places:
            place.check()
            assert place.num_bytes_used == self.store.idle_bytes(place.index)
        for arena in self.owners.arenas:
            arena.check()
            assert arena in self.owners.places or arena.num_bytes_used == 0


def payload_region(job: EncodeJob) -> Region:
    assert isinstance(job.payload, Pixels)
    return job.payload.region


def encoded(job: EncodeJob, data: bytes) -> Encoded:
    return Encoded(
        job_id=job.job_id,
        dtype="uint8",
        shape=(1, job.plan.num_tokens, PER_TOKEN),
        feature_digest=data,
        queue_seconds=0.0,
        decode_seconds=0.0,
        preprocess_seconds=0.0,
        digest_seconds=0.0,
        encode_seconds=0.0,
    )


def pictures(*contents: str, num_tokens: int = 1) -> list[Picture]:
    """Pictures of these contents; equal contents are equal images at other places."""
    return [
        Picture(
            SourceImage(index, f"messages[0].content[{index}]", content.encode()),
            HEADER,
            ImageTask(index, make_plan((len(content), 9), num_tokens=num_tokens), content.encode()),
        )
        for index, content in enumerate(contents)
    ]


@dataclass
class Caller:
    """One request under way."""

    house: House
    name: str
    wanted: list[Picture]
    cleanup: ExitStack = field(default_factory=ExitStack)

    async def obtain(self) -> list[str]:
        entries, _ = await self.house.encoder.obtain(self.wanted, self.name, self.cleanup)
        return [self.house.data_of(entry).decode() for entry in entries]

    async def run(self) -> list[str]:
        with self.cleanup:
            return await self.obtain()


def ask(house: House, name: str, *contents: str) -> "asyncio.Task[list[str]]":
    return asyncio.create_task(Caller(house, name, pictures(*contents)).run())


async def until(condition: Callable[[], bool], seconds: float = 5) -> None:
    """Return once the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nobody here could set an event
            await asyncio.sleep(0.001)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 20))
