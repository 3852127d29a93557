"""What goes over the wires between gateway and workers as inputs, both ways.

An input is a letter that says which end reads it, then a stream. It is read in pieces of any size:
`G` by the gateway's link, whose messages go on to its dispatcher, `W` by the loop of a worker
whose stages take whatever job comes and do nothing with it.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any, Generic, cast

import msgspec

from gateway.jobs.dispatch import Dispatcher
from gateway.observe.metrics import Metrics
from ops.fuzz.fleet import InlinePool
from ops.fuzz.mutate import mutate
from ops.fuzz.samples import FROM_WORKER, TO_WORKER
from ops.fuzz.target import Wrong
from ops.fuzz.trees import damage
from workers.link import Link
from workers.messages import (
    EncodeJob,
    Failed,
    FromWorker,
    GenerateJob,
    LastEvent,
    MapPool,
    PoolMapped,
    ToWorker,
)
from workers.stage import Job
from workers.wire import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    FrameTooLong,
    NotUnderstood,
    Splitter,
    pack,
    unpack,
)
from workers.worker import Worker

_NAMES = tuple({name for each in (*TO_WORKER, *FROM_WORKER) for name in each.__struct_fields__})
_LENGTHS = (0, 1, MAX_FRAME_BYTES, MAX_FRAME_BYTES + 1, 0xFFFFFFFF)
_MAX_BYTES = 1 << 16  # of a stream; a socket takes it in one go
_MAX_REPEATS = 20_000


class Frames:
    """Streams of frames."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._pool = InlinePool(arena_bytes=4096)

    def make(self, chance: Random) -> bytes:
        """A letter and some frames, most of them wrong."""
        reader = chance.choice("GW")
        samples = FROM_WORKER if reader == "G" else TO_WORKER
        frames = [
            self._frame(chance.choice(samples), chance) for _ in range(chance.randrange(1, 5))
        ]
        stream = b"".join(frames)
        if chance.random() < 0.2:
            stream = mutate(stream, chance)
        return reader.encode() + stream[:_MAX_BYTES]

    def _frame(self, message: Any, chance: Random) -> bytes:
        match chance.randrange(8):
            case 0:
                return pack(message)
            case 1:
                body = mutate(msgspec.msgpack.encode(message), chance)
            case 2:
                body = _bomb(chance)
            case 3:
                length = chance.choice(_LENGTHS).to_bytes(HEADER_BYTES, "big")
                return length + msgspec.msgpack.encode(message)
            case _:
                tree = msgspec.msgpack.decode(msgspec.msgpack.encode(message))
                body = msgspec.msgpack.encode(damage(tree, _NAMES, chance))
        return len(body).to_bytes(HEADER_BYTES, "big") + body

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        reader, stream = data[:1], data[1:]
        pieces = list(_cut(stream))
        whole = _split([stream])
        if whole != _split(pieces):
            raise Wrong("frames depend on how the stream is cut")
        if reader == b"G":
            return self._runner.run(_read_as_gateway(pieces, self._pool))
        return _read_as_worker(pieces, whole[0])

    def close(self) -> None:
        """Ends the event loop, and lets the memory go."""
        self._runner.close()
        self._pool.close()


def _bomb(chance: Random) -> bytes:
    """Few bytes that announce much, or lie deep in each other."""
    lists, objects = b"\x91", b"\x81\xa1a"
    kind = chance.choice((lists, objects, b"\x81\xa4type\x81", b"\xdc\x00\x01"))
    much = (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\x7f\xff\xff\xff",
    )
    if chance.random() < 0.5:
        return chance.choice(much) + chance.randbytes(9)
    return kind * chance.choice((30, 900, 1100, _MAX_REPEATS)) + b"\xc0"


def _cut(stream: bytes) -> Iterator[bytes]:
    """The stream in pieces; which ones, its bytes decide."""
    chance = Random(zlib.crc32(stream))
    place = 0
    while place < len(stream):
        end = place + chance.choice((1, 3, 17, 4096, _MAX_BYTES))
        yield stream[place:end]
        place = end


def _split(pieces: list[bytes]) -> tuple[list[bytes], bool]:
    """Bodies of the frames, and whether the stream broke."""
    splitter, bodies = Splitter(), list[bytes]()
    try:
        for piece in pieces:
            for body in splitter.feed(piece):
                bodies.append(body)
    except FrameTooLong:
        return bodies, True
    return bodies, False


class _Transport:
    """The gateway's socket, as far as a link needs it."""

    def __init__(self) -> None:
        self.is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True


async def _read_as_gateway(pieces: list[bytes], pool: InlinePool) -> str:
    heard: list[FromWorker] = []
    dispatcher = Dispatcher(cast("Any", pool), Metrics(pool.names), fence_seconds=0)
    transport, link = _Transport(), Link(heard.append)
    link.connection_made(cast("Any", transport))
    for piece in pieces:
        if not transport.is_aborted:
            link.data_received(piece)
    if bool(link.fault) != transport.is_aborted:
        raise Wrong("a link that is broken without a word, or not broken")
    for message in heard:
        body = msgspec.msgpack.encode(message)  # bytes, for a NaN equals nothing
        if msgspec.msgpack.encode(unpack(body, msgspec.msgpack.Decoder(FromWorker))) != body:
            raise Wrong("a message changes on its way")
        dispatcher.on_event(0, message)
    return f"gateway: {'broken' if link.fault else 'read'}, {'some' if heard else 'no'} messages"


class _Idle(Generic[Job]):
    """A stage that ends each job in its next step. Owned by the worker's loop."""

    def __init__(self) -> None:
        self._jobs: dict[str, None] = {}

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def put(self, job: Job) -> None:
        self._jobs[job.job_id] = None

    def abort(self, job_id: str) -> None:
        """It ends in the next step anyway."""

    def step(self) -> list[FromWorker]:
        jobs, self._jobs = self._jobs, {}
        return [Failed(job_id=job_id, kind="internal", message="") for job_id in jobs]

    def map_pool(self, message: MapPool) -> PoolMapped:
        return PoolMapped(number=message.pool.number, failure="")

    def drop_pool(self, number: int) -> None:
        pass


class _Wire:
    """A worker's channel that gives it a stream and then ends. Owned by the worker's loop."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.closed = False
        self.told: list[FromWorker] = []
        self._pieces = pieces
        self._splitter = Splitter()

    def receive(self, *, wait: bool) -> list[bytes]:
        if self._pieces:
            return list(self._splitter.feed(self._pieces.pop(0)))
        self.closed = True
        return []

    def send(self, *messages: FromWorker) -> None:
        for message in messages:
            pack(message)
        self.told += messages


def _read_as_worker(pieces: list[bytes], bodies: list[bytes]) -> str:
    wire = _Wire(pieces)
    worker = Worker(cast("Any", wire), _Idle[EncodeJob](), _Idle[GenerateJob]())
    try:
        worker.run()
    except FrameTooLong:
        return "worker: broken"
    if not wire.closed:
        return "worker: told to stop"
    ends = Counter(message.job_id for message in wire.told if isinstance(message, LastEvent))
    jobs = Counter(job_id for body in bodies if (job_id := _job_in(body)) is not None)
    if jobs.keys() - ends.keys():
        raise Wrong("a job without an end")
    if ends.total() > len(bodies):
        raise Wrong("more ends than frames")
    return f"worker: read, {'some' if jobs else 'no'} jobs"


def _job_in(body: bytes) -> str | None:
    try:
        message = unpack(body, msgspec.msgpack.Decoder(ToWorker))
    except NotUnderstood:
        return None
    return message.job_id if isinstance(message, EncodeJob | GenerateJob) else None
