"""A host's name in, a connection out, to an address of it that was looked at first.

The check sits where the connection is made, so nothing can come between: the name is looked up
once, all its addresses are judged, and one of those very addresses is connected to. A connection
that is used again goes where it went.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import zip_longest
from typing import Protocol

import anyio
import httpcore

from gateway.images.address import is_public

_MAX_ADDRESSES_TRIED = 4  # of one host; a name must not make the gateway knock on a hundred doors
_NEXT_TRY_SECONDS = 0.25  # how long an address may keep the next one waiting, RFC 8305


Stream = httpcore.AsyncNetworkStream
Connect = Callable[[str], Awaitable[Stream]]


class AddressForbidden(Exception):
    """A host has an address that may not be reached; which one is not told."""


class Lookup(Protocol):
    """Where the addresses of hosts come from."""

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """All addresses of a host, IPv6 or IPv4, at least one, best first.

        Raises:
            OSError: the name cannot be resolved.
            UnicodeError: it can be no name.
        """

    def close(self) -> None:
        """Start no further lookup."""


class SystemLookup:
    """The system's resolver, in threads of its own: those of the event loop are four."""

    def __init__(self, num_threads: int) -> None:
        self._threads = ThreadPoolExecutor(num_threads, thread_name_prefix="lookup")

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        """See `Lookup`. One that is no longer waited for keeps its thread until it ends."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _look_up, host, port)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int) -> Sequence[str]:
    # As bytes, because the name went through IDNA when its URL was read.
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """What connects for the HTTP client; TLS goes by the name in the URL, whatever the address."""

    def __init__(
        self,
        lookup: Lookup,
        *,
        allow_private: bool,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        self._lookup = lookup
        self._allow_private = allow_private
        self._network = network or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> Stream:
        """Connect to the first address of `host` that answers.

        Raises:
            AddressForbidden: one of its addresses may not be reached; none was tried.
            httpcore.ConnectError: no address answers.
            OSError, UnicodeError: the name cannot be resolved.
        """
        addresses = await self._lookup.addresses(host, port)
        # One bad address spoils all: which of them is taken would be up to whoever owns the name.
        if not self._allow_private and not all(is_public(address) for address in addresses):
            raise AddressForbidden

        async def connect(address: str) -> Stream:
            return await self._network.connect_tcp(
                address, port, timeout, local_address, socket_options
            )

        return await _first_to_answer(connect, _in_turns(addresses)[:_MAX_ADDRESSES_TRIED])


def _in_turns(addresses: Sequence[str]) -> list[str]:
    """The families in turns, the first one's first: where one leads nowhere, the other may."""
    first = [address for address in addresses if (":" in address) == (":" in addresses[0])]
    second = [address for address in addresses if address not in first]
    return [address for pair in zip_longest(first, second) for address in pair if address]


async def _first_to_answer(connect: Connect, addresses: Sequence[str]) -> Stream:
    """Connect to one address after the other, not waiting long for each; the first one wins."""
    streams: list[Stream] = []
    failures: list[Exception] = []

    async def attempt(address: str, ended: anyio.Event) -> None:
        try:
            streams.append(await connect(address))
            group.cancel_scope.cancel()
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            failures.append(error)
        finally:
            ended.set()

    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                ended = anyio.Event()
                group.start_soon(attempt, address, ended)
                with anyio.move_on_after(_NEXT_TRY_SECONDS):
                    await ended.wait()
    except BaseException:
        await _close(streams)
        raise
    await _close(streams[1:])
    if not streams:
        raise failures[0]
    return streams[0]


async def _close(streams: Iterable[Stream]) -> None:
    with anyio.CancelScope(shield=True):
        for stream in streams:
            await stream.aclose()
