"""Ways into the machine and its nets, each beside a listener that is reached without the guard."""

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
from gateway.fetch import Fetcher
from gateway.guard import Lookup
from gateway.prompt import ImageRef
from tests.gateway.hosts import answering, good, redirecting, serving
from tests.gateway.network import Detour, ScriptedLookup
from tests.pictures import encoded, noise

pytestmark = pytest.mark.anyio

TLS = ssl.create_default_context()
PICTURE = encoded(noise(31, (58, 37)))
PUBLIC, SECOND, PRIVATE = "93.184.216.34", "2606:2800:220:1::1", "10.20.30.40"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def fetch(
    address: str,
    *,
    lookup: Lookup | None = None,
    network: Detour | None = None,
    private: bool = False,
    domains: str = "",
    tls: ssl.SSLContext = TLS,
) -> bytes:
    limits = ImageSettings(media_allow_private=private, media_allowed_domains=domains)
    fetcher = Fetcher(limits, tls, lookup, network)
    try:
        return (await fetcher.fetch(reference(address))).data
    finally:
        await fetcher.close()


def reference(address: str) -> ImageRef:
    return ImageRef(3, "messages[0].content[2].image_url", address)


async def refused(address: str, **options: object) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        await fetch(address, **options)  # type: ignore[arg-type]
    error = caught.value
    assert (error.index, error.stage, error.status) == (3, "fetch", 400)
    return error


LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "2130706433", "0x7f000001", "0x7F.1",
    "0x7f.0.0.0x1", "017700000001", "0177.1", "localhost", "LocalHost",
    "[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:7f00:0001]", "127。0。0。1", "127．1",
]  # fmt: skip


@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_loopback_is_connected_to(host: str) -> None:
    async with serving(a=good(PICTURE)) as victim:
        url = f"http://{host}:{victim.port}/a"
        error = await refused(url)
        assert (error.code, error.retryable) == ("address_forbidden", False)
        assert victim.num_connections == 0
        assert await fetch(url, private=True) == PICTURE  # it would have been hit
        assert victim.num_connections == 1


@pytest.mark.parametrize(
    "host",
    [
        "[::1%25lo]",
        "[::1%lo]",
        "pictures.example@127.0.0.1",
        "127.0.0.1%00.pictures.example",
        "127%2e0%2e0%2e1",
        "0177.0.0.1",
        "①②⑦.⓪.⓪.①",
        "ⓛocalhost",
        "local\u00adhost",
        "127.0.0.1 ",
    ],
)
async def test_a_host_that_two_libraries_may_read_differently_is_none(host: str) -> None:
    async with serving(a=good(PICTURE)) as victim:
        error = await refused(f"http://{host}:{victim.port}/a", private=True)
        assert error.code == "invalid_url"
        assert victim.num_connections == 0


@pytest.mark.parametrize(
    "address",
    ["169.254.169.254", "fd00:ec2::254", "100.100.100.200", "10.0.0.1", "192.168.1.1", "172.16.0.1",
     "100.64.0.1", "::1", "fe80::1", "::ffff:10.0.0.1", "2002:7f00:1::", "64:ff9b::a00:1",
     "224.0.0.1", "255.255.255.255", "0.0.0.0"],
)  # fmt: skip
async def test_a_name_of_an_inner_address_is_not_connected_to(address: str) -> None:
    async with serving(a=good(PICTURE)) as victim:
        lookup, network = ScriptedLookup(pictures_example=[[address]]), Detour(victim.port)
        error = await refused("http://pictures.example/a", lookup=lookup, network=network)
        assert error.code == "address_forbidden"
        assert address not in error.message
        assert network.dialled == []
        url = "http://pictures.example/a"
        assert await fetch(url, lookup=lookup, network=network, private=True) == PICTURE
        assert network.dialled == [address]


@pytest.mark.parametrize("addresses", [[PUBLIC, PRIVATE], [PRIVATE, PUBLIC], [SECOND, "::1"]])
async def test_one_inner_address_among_public_ones_spoils_the_name(addresses: list[str]) -> None:
    async with serving(a=good(PICTURE)) as victim:
        lookup, network = ScriptedLookup(mixed_example=[addresses]), Detour(victim.port)
        error = await refused("http://mixed.example/a", lookup=lookup, network=network)
        assert error.code == "address_forbidden"
        assert network.dialled == []
        await fetch("http://mixed.example/a", lookup=lookup, network=network, private=True)
        assert network.dialled == addresses[:1]


async def test_a_name_is_looked_up_once_and_that_answer_is_connected_to() -> None:
    async with serving(a=good(PICTURE)) as host:
        # A check apart from the connection would ask twice, and connect to the second answer.
        lookup = ScriptedLookup(rebind_example=[[PUBLIC], ["127.0.0.1"]])
        network = Detour(host.port)
        assert await fetch("http://rebind.example/a", lookup=lookup, network=network) == PICTURE
    assert lookup.asked == ["rebind.example"]
    assert network.dialled == [PUBLIC]


@pytest.mark.parametrize("private", [False, True])
async def test_a_name_that_turns_inward_between_two_hops_is_refused(private: bool) -> None:
    leave = answering("HTTP/1.1 302 Found|content-length: 0|connection: close|location: /b")
    async with serving(a=leave, b=good(PICTURE)) as host:
        lookup = ScriptedLookup(rebind_example=[[PUBLIC], ["127.0.0.1"]])
        network = Detour(host.port)
        if private:
            await fetch("http://rebind.example/a", lookup=lookup, network=network, private=True)
        else:
            error = await refused("http://rebind.example/a", lookup=lookup, network=network)
            assert error.code == "address_forbidden"
    assert network.dialled == ([PUBLIC, "127.0.0.1"] if private else [PUBLIC])
    assert host.num_connections == len(network.dialled)


@pytest.mark.parametrize("inside", ["http://127.0.0.1", "//127.1", "http://[::ffff:7f00:1]"])
async def test_no_redirect_leads_inside(inside: str) -> None:
    async with serving(b=good(PICTURE)) as victim, serving() as host:
        host.behaviours["a"] = redirecting(f"{inside}:{victim.port}/b")
        lookup, network = ScriptedLookup(outside_example=[[PUBLIC]]), Detour(host.port)
        error = await refused("http://outside.example/a", lookup=lookup, network=network)
        assert error.code == "address_forbidden"
        assert network.dialled == [PUBLIC]
        assert await fetch(f"{host.url}/a", private=True) == PICTURE
        assert victim.num_connections == 1


async def test_no_redirect_leads_to_a_file() -> None:
    async with serving(a=redirecting("file:///etc/hostname")) as host:
        error = await refused(f"{host.url}/a", private=True)
        assert error.code == "unsupported_scheme"


async def test_an_open_port_and_a_closed_one_inside_are_told_apart_by_nothing() -> None:
    async with serving(a=good(PICTURE)) as victim:
        here = await refused(f"http://127.0.0.1:{victim.port}/a")
    nobody = await refused(f"http://127.0.0.1:{victim.port}/a")
    assert (here.message, here.code) == (nobody.message, nobody.code)


async def test_a_redirect_to_a_domain_that_is_not_allowed_ends_there() -> None:
    async with serving(a=redirecting("http://other.example/b"), b=good(PICTURE)) as host:
        lookup = ScriptedLookup(good_example=[[PUBLIC]], other_example=[[SECOND]])
        network = Detour(host.port)
        url = "http://good.example/a"
        error = await refused(url, lookup=lookup, network=network, domains="good.example")
        assert error.code == "domain_not_allowed"
        assert "other.example" in error.message
        assert (lookup.asked, network.dialled) == (["good.example"], [PUBLIC])
        assert await fetch(url, lookup=lookup, network=network) == PICTURE
        assert network.dialled == [PUBLIC, PUBLIC, SECOND]


async def test_a_domain_that_is_allowed_is_not_thereby_public() -> None:
    async with serving(a=good(PICTURE)) as victim:
        error = await refused(f"http://127.0.0.1:{victim.port}/a", domains="127.0.0.1")
        assert (error.code, victim.num_connections) == ("address_forbidden", 0)


async def test_other_spellings_of_an_allowed_address_are_not_allowed() -> None:
    async with serving(a=good(PICTURE)) as victim:
        url = f"http://127.0.0.1:{victim.port}/a"
        assert await fetch(url, private=True, domains="127.0.0.1") == PICTURE
        error = await refused(url.replace("127.0.0.1", "127.1"), private=True, domains="127.0.0.1")
        assert (error.code, victim.num_connections) == ("domain_not_allowed", 1)


@pytest.mark.parametrize("host", ["Pictures.Example.", "a.shop.example", "xn--bch-hoa.example"])
async def test_a_listed_domain_is_fetched_from_in_any_spelling(host: str) -> None:
    async with serving(a=good(PICTURE)) as server:
        name = host.lower().removesuffix(".").replace(".", "_")
        lookup, network = ScriptedLookup(**{name: [[PUBLIC]]}), Detour(server.port)
        domains = "pictures.example, *.SHOP.example, büch.example"
        got = await fetch(f"http://{host}/a", lookup=lookup, network=network, domains=domains)
        assert got == PICTURE


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
