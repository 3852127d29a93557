"""Main of a worker process: inherited file numbers in, an exit status out."""

import ctypes
import logging
import os
import signal
import socket
import sys
import time
from typing import NoReturn

import msgspec

from config.logs import set_up_logs
from workers.arena import Arenas
from workers.beside import Beside
from workers.build import CannotStart, build_stages
from workers.families import UnsupportedCheckpoint
from workers.heart import Heart
from workers.messages import Loading, Start, StartFailed
from workers.niceness import give_way
from workers.stage import Build
from workers.wire import Channel
from workers.worker import Worker

_PR_SET_PDEATHSIG = 1
_PROGRESS_SECONDS = 0.1

logger = logging.getLogger(__name__)


def main(arguments: list[str], build: Build) -> NoReturn:
    """Serve the link whose file number comes first; then the gateway's id, then the arenas."""
    connection, gateway, *arenas = map(int, arguments)
    _die_with_gateway(gateway)
    # The gateway decides when we leave: a signal to the whole group asks it to drain, not us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    status = serve(Channel(socket.socket(fileno=connection)), Arenas(arenas), build)
    sys.stdout.flush()
    os._exit(status)  # taking torch apart module by module would take a second


def _die_with_gateway(gateway: int) -> None:
    """End even in the middle of a long step, when no end of file is seen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != gateway:  # it ended before we asked
        sys.exit(1)


def serve(channel: Channel, arenas: Arenas, build: Build) -> int:
    """Be the worker that the first message describes; the exit status of the process."""
    bodies: list[bytes] = []
    while not bodies:
        if channel.closed:
            return 1  # the gateway left before it had said anything
        bodies = channel.receive(wait=True)
    start = msgspec.msgpack.decode(bodies[0], type=Start)
    set_up_logs(start.log_level, start.name, start.log_format)
    if start.device == "cpu" and start.roles == ("vision",):
        give_way()
    try:
        vision, language, ready = build(start, arenas, _Reporter(channel))
    except Exception as error:  # noqa: BLE001 - the gateway reports it and exits or tries again
        channel.send(StartFailed(message=_explain(error)))
        channel.drain()
        return 1
    channel.send(ready)
    turns = []
    if start.device == "cpu" and vision is not None and language is not None:
        vision = Beside(vision, channel.ring)
        turns.append(vision.turn)
    worker = Worker(channel, vision, language)
    with Heart(channel, [worker.turn, *turns]):
        worker.run()
    channel.drain()
    return 0


def _explain(error: Exception) -> str:
    if isinstance(error, CannotStart | UnsupportedCheckpoint):
        return str(error)
    logger.error("cannot start", exc_info=error)
    return f"{type(error).__name__}: {error}"


class _Reporter:
    """Sends the progress of loading, not more often than one can read."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sent_at = 0.0

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        if done == total or now - self._sent_at >= _PROGRESS_SECONDS:
            self._channel.send(Loading(done=done, total=total))
            self._sent_at = now


if __name__ == "__main__":
    main(sys.argv[1:], build_stages)
