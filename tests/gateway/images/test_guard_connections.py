"""Connections to addresses that were checked: names for TLS, lookups, and which address wins."""

import socket
import ssl
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import httpcore
import pytest
import trustme

from config.settings import ImageSettings
from gateway.errors import ImageRejected
from gateway.images.fetch import Fetcher
from tests.gateway.fetching import PICTURE, PUBLIC, SECOND, TLS, fetch, reference, refused
from tests.gateway.hosts import good, serving
from tests.gateway.network import Detour, ScriptedLookup

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_connection_is_used_again_without_another_lookup() -> None:
    async with serving(a=_good_twice) as host:
        lookup, network = ScriptedLookup(pictures_example=[[PUBLIC]]), Detour(host.port)
        fetcher = Fetcher(ImageSettings(), TLS, lookup, network)
        for _ in range(2):
            await fetcher.fetch(reference("http://pictures.example/a"))
        await fetcher.close()
    assert (lookup.asked, network.dialled) == (["pictures.example"], [PUBLIC])


async def _good_twice(stream: anyio.abc.ByteStream, head: str) -> None:
    await good(PICTURE)(stream, head)
    await stream.receive()
    await good(PICTURE)(stream, head)


def _certified(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What a server of that name and a client that trusts it use."""
    authority = trustme.CA()
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert(name).configure_cert(server)
    authority.configure_trust(client)
    return server, client


@pytest.mark.parametrize("dot", ["", "."])
async def test_tls_and_the_host_header_go_by_the_name_not_the_address(dot: str) -> None:
    server, client = _certified("pictures.example")
    async with serving(server, a=good(PICTURE)) as host:
        lookup, network = ScriptedLookup(pictures_example=[[PUBLIC]]), Detour(host.port)
        url = f"https://pictures.example{dot}/a"
        assert await fetch(url, lookup=lookup, network=network, tls=client) == PICTURE
    assert network.dialled == [PUBLIC]
    assert host.names == ["pictures.example"]
    assert f"host: pictures.example{dot}\r\n" in host.heads[0].lower()


async def test_a_certificate_of_another_name_is_not_taken() -> None:
    server, client = _certified("other.example")
    async with serving(server, a=good(PICTURE)) as host:
        lookup, network = ScriptedLookup(pictures_example=[[PUBLIC]]), Detour(host.port)
        url = "https://pictures.example/a"
        error = await refused(url, lookup=lookup, network=network, tls=client)
    assert error.code == "fetch_failed"
    assert host.heads == []


async def test_no_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving(a=good(PICTURE)) as host, serving() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
            monkeypatch.setenv(name.lower(), proxy.url)
        assert await fetch(f"{host.url}/a", private=True) == PICTURE
        assert (host.num_connections, proxy.num_connections) == (1, 0)


@pytest.mark.slow
async def test_an_address_that_never_answers_gives_way_to_the_next() -> None:
    async with serving(a=good(PICTURE)) as host:
        lookup = ScriptedLookup(pictures_example=[[SECOND, "2606:2800:220:1::2", PUBLIC]])
        network = Detour(host.port, silent=[SECOND])
        with anyio.fail_after(2):
            await fetch("http://pictures.example/a", lookup=lookup, network=network)
    assert network.dialled == [SECOND, PUBLIC]  # the other family, before more of the same


class _Unhurried(Detour):
    """Two addresses connect in the same moment, whether or not one was given up meanwhile."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.both_dialled = anyio.Event()

    async def connect_tcp(
        self, host: str, port: int, *_: Any, **__: Any
    ) -> httpcore.AsyncNetworkStream:
        with anyio.CancelScope(shield=True):
            if self.dialled:
                self.both_dialled.set()
            stream = await super().connect_tcp(host, port)
            await self.both_dialled.wait()
        return stream


@pytest.mark.slow
async def test_of_two_connections_made_at_once_one_is_closed() -> None:
    async with serving(a=good(PICTURE)) as host:
        lookup = ScriptedLookup(pictures_example=[[PUBLIC, SECOND]])
        network = _Unhurried(host.port)
        assert await fetch("http://pictures.example/a", lookup=lookup, network=network) == PICTURE
        with anyio.fail_after(2):
            await host.left.wait()
    assert (host.num_connections, len(host.heads)) == (2, 1)


async def test_few_addresses_of_a_host_are_tried() -> None:
    addresses = [f"8.8.4.{number}" for number in range(100)]
    lookup, network = ScriptedLookup(many_example=[addresses]), Detour(1, closed=addresses)
    error = await refused("http://many.example/a", lookup=lookup, network=network)
    assert (error.code, error.retryable) == ("fetch_failed", True)
    assert "many.example cannot be reached" in error.message
    assert network.dialled == addresses[:4]


async def test_refusals_use_up_no_connections() -> None:
    async with serving(a=good(PICTURE)) as host:
        lookup = ScriptedLookup(inner_example=[["10.0.0.1"]], pictures_example=[[PUBLIC]])
        fetcher = Fetcher(ImageSettings(fetch_connections=2), TLS, lookup, Detour(host.port))
        for _ in range(5):
            with pytest.raises(ImageRejected):
                await fetcher.fetch(reference("http://inner.example/a"))
        with anyio.fail_after(2):
            await fetcher.fetch(reference("http://pictures.example/a"))
        await fetcher.close()


async def test_a_name_server_that_never_answers_uses_up_no_more_than_the_time() -> None:
    class Silent(ScriptedLookup):
        async def addresses(self, host: str, port: int) -> Sequence[str]:
            await anyio.sleep_forever()
            raise AssertionError

    fetcher = Fetcher(ImageSettings(fetch_seconds=0.1), TLS, Silent())
    with anyio.fail_after(2), pytest.raises(ImageRejected) as caught:
        await fetcher.fetch(reference("http://slow.example/a"))
    await fetcher.close()
    assert (caught.value.code, caught.value.retryable) == ("fetch_timeout", True)


async def test_lookups_that_hang_hold_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    look_up = socket.getaddrinfo

    def hang(host: bytes, *arguments: Any, **options: Any) -> Any:
        if host.startswith(b"slow"):
            ended.wait(10)
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return look_up(host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    async with serving(a=good(PICTURE)) as host:
        fetcher = Fetcher(ImageSettings(media_allow_private=True), TLS)
        async with anyio.create_task_group() as group:
            for number in range(30):
                group.start_soon(fetcher.fetch, reference(f"http://slow{number}.example/a"))
            await anyio.wait_all_tasks_blocked()
            with anyio.fail_after(2):
                await fetcher.fetch(reference(f"http://localhost:{host.port}/a"))
            group.cancel_scope.cancel()
        ended.set()
        await fetcher.close()
