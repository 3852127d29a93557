"""Ways into the machine and its nets, each beside a listener that is reached without the guard."""

import pytest

from tests.gateway.fetching import PICTURE, PRIVATE, PUBLIC, SECOND, fetch, refused
from tests.gateway.hosts import answering, good, redirecting, serving
from tests.gateway.network import Detour, ScriptedLookup

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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


@pytest.mark.parametrize("host", ["10.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "[::1]"])
async def test_an_inner_address_itself_is_not_connected_to(host: str) -> None:
    async with serving(a=good(PICTURE)) as victim:
        lookup, network = ScriptedLookup(), Detour(victim.port)
        error = await refused(f"http://{host}/a", lookup=lookup, network=network)
        assert (error.code, network.dialled) == ("address_forbidden", [])
        url = f"http://{host}/a"
        assert await fetch(url, lookup=lookup, network=network, private=True) == PICTURE
        assert network.dialled == [host.strip("[]")]


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


async def test_a_name_that_nobody_knows_is_told_from_a_host_that_is_down() -> None:
    error = await refused("http://unknown.example/a", lookup=ScriptedLookup())
    assert "unknown.example has a name that cannot be looked up" in str(error)
    assert (error.code, error.retryable) == ("fetch_failed", True)
