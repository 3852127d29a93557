"""A worker's loop in a thread, and the gateway's end of its link."""

import socket
import threading

import msgspec

from workers.arena import Arena, Arenas
from workers.messages import Encoded, EncodeJob, Failed, Finished, FromWorker
from workers.stage import Answering, Stage
from workers.wire import Channel, Splitter
from workers.worker import Worker


class Peer:
    """The gateway's end of a loop that runs in a thread. Owned by the test."""

    def __init__(self) -> None:
        self.arena = Arena(0, 1 << 16)
        self.connection, self.other_end = socket.socketpair()
        self.connection.settimeout(10)
        self.arenas = Arenas([self.arena.file_number])
        self.channel = Channel(self.other_end)
        self.error: BaseException | None = None
        self._splitter = Splitter()
        self._bodies: list[bytes] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._worker: Worker

    def start(self, vision: Stage[EncodeJob] | None, language: Answering | None) -> None:
        self._worker = Worker(self.channel, vision, language)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._worker.run()
            self.channel.drain()
        except RuntimeError as error:
            self.error = error

    def send(self, *frames: bytes) -> None:
        self.connection.sendall(b"".join(frames))

    def next(self) -> FromWorker:
        while not self._bodies:
            self._bodies += self._splitter.feed(self.connection.recv(1 << 16))
        event: FromWorker = msgspec.msgpack.decode(self._bodies.pop(0), type=FromWorker)
        return event

    def last(self, job_id: str) -> Encoded | Finished | Failed:
        while True:
            event = self.next()
            if isinstance(event, Encoded | Finished | Failed) and event.job_id == job_id:
                return event

    def has_ended(self) -> bool:
        self._thread.join(10)
        return not self._thread.is_alive()
