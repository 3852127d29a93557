"""Listening sockets and what the system grants them."""

import resource
import socket
from array import array
from fcntl import ioctl
from termios import FIONREAD, TIOCOUTQ

from config.settings import ServerSettings

# A peer that is gone without a word is noticed after the first plus the product of the others.
_PROBE_AFTER_SECONDS = 60
_PROBE_EVERY_SECONDS = 10
_NUM_PROBES = 6
# Likewise one that takes in nothing of what was sent; `stalled_seconds` says it better.
_UNTAKEN_MILLISECONDS = 120_000
_MANY_FILES = 1 << 20  # where the system knows no limit


class StartError(Exception):
    """The gateway cannot start; the message is for the operator."""


def listen(settings: ServerSettings) -> socket.socket:
    """Bind the listening socket before anything heavy starts.

    Raises:
        StartError: the address or port cannot be had.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
        _notice_lost_peers(listener)
        listener.listen()  # else another process could bind as well, and one of us be unheard
    except OSError as error:
        listener.close()
        raise StartError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}; "
            "FOVEA_HOST and FOVEA_PORT choose another"
        ) from error
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a listening socket is reached."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _notice_lost_peers(listener: socket.socket) -> None:
    """Have the system end connections whose peer is gone; those that are accepted inherit it."""
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_SECONDS)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_SECONDS)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _NUM_PROBES)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNTAKEN_MILLISECONDS)


def num_unsent_bytes(descriptor: int) -> int:
    """Bytes that the system holds for the peer of a connection, which has not taken them in."""
    return _count(descriptor, TIOCOUTQ)


def num_unread_bytes(descriptor: int) -> int:
    """Bytes of the peer of a connection that have come and that nobody has read."""
    return _count(descriptor, FIONREAD)


def _count(descriptor: int, what: int) -> int:
    count = array("i", [0])
    ioctl(descriptor, what, count)
    return count[0]


def allow_many_files() -> int:
    """Raise this process's limit of open files as far as it may; gives the new limit.

    The usual limit of 1024 is for programs that call select, which nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MANY_FILES if hard == resource.RLIM_INFINITY else hard
    if soft != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
