"""Main of a worker process: inherited file numbers in, an exit status out."""

import ctypes
import os
import signal
import socket
import sys

from workers.arena import Arenas
from workers.build import build_stages
from workers.wire import Channel
from workers.worker import Build, serve

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str], build: Build) -> int:
    """Serve the link whose file number comes first; then the gateway's id, then the arenas."""
    connection, gateway, *arenas = map(int, arguments)
    # The gateway decides when we leave: a signal to the whole group asks it to drain, not us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _die_with_gateway(gateway)
    return serve(Channel(socket.socket(fileno=connection)), Arenas(arenas), build)


def _die_with_gateway(gateway: int) -> None:
    """End even in the middle of a long step, when no end of file is seen."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != gateway:  # it ended before we asked
        sys.exit(1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], build_stages))
