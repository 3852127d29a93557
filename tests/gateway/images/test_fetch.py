"""Image hosts that do everything a host can do wrong, on loopback."""

import gzip
import ssl

import anyio
import anyio.abc
import pytest

from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.images.fetch import Fetcher, SourceImage
from gateway.prompts.prompt import ImageRef
from tests.gateway.hosts import Behaviour, answering, good, redirecting, serving
from tests.pictures import encoded, noise

pytestmark = pytest.mark.anyio

LIMIT = 200_000
TLS = ssl.create_default_context()  # made once, because that takes a tenth of a second
PICTURE = encoded(noise(11, (67, 41)))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def limits(seconds: float = 5.0, redirects: int = 3) -> ImageSettings:
    return ImageSettings(
        max_image_bytes=LIMIT,
        fetch_seconds=seconds,
        fetch_redirects=redirects,
        media_allow_private=True,
    )


def reference(address: str | bytes) -> ImageRef:
    return ImageRef(4, "messages[2].content[1].image_url", address)


async def fetch(address: str | bytes, settings: ImageSettings | None = None) -> SourceImage:
    fetcher = Fetcher(settings or limits(), TLS)
    try:
        return await fetcher.fetch(reference(address))
    finally:
        await fetcher.close()


async def refused(address: str, settings: ImageSettings | None = None) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        await fetch(address, settings)
    error = caught.value
    assert (error.index, error.stage) == (4, "fetch")
    assert error.param == "messages[2].content[1].image_url"
    assert 400 <= error.status < 500
    assert "secret" not in error.message
    return error


async def test_bytes_are_there_already() -> None:
    assert await fetch(PICTURE) == SourceImage(4, "messages[2].content[1].image_url", PICTURE)


async def test_a_picture_comes_as_it_is_whatever_its_name_and_type() -> None:
    async with serving(odd=good(PICTURE)) as host:
        assert (await fetch(f"{host.url}/odd?x=1#y")).data == PICTURE


async def test_a_body_without_a_length_ends_where_the_connection_does() -> None:
    async with serving(a=answering("HTTP/1.1 200 OK", PICTURE[:50], PICTURE[50:])) as host:
        assert (await fetch(f"{host.url}/a")).data == PICTURE


async def test_a_chunked_body_is_put_together() -> None:
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (PICTURE[:99], PICTURE[99:]))
    behaviour = answering("HTTP/1.1 200 OK|transfer-encoding: chunked", chunks + b"0\r\n\r\n")
    async with serving(a=behaviour) as host:
        assert (await fetch(f"{host.url}/a")).data == PICTURE


async def test_hosts_see_who_asks_and_that_nothing_shall_be_packed() -> None:
    async with serving(a=good(PICTURE)) as host:
        await fetch(f"{host.url}/a")
    (head,) = host.heads
    assert "user-agent: fovea" in head.lower()
    assert "accept-encoding: identity" in head.lower()


async def test_no_cookie_of_one_image_is_sent_for_another() -> None:
    head = f"HTTP/1.1 200 OK|content-length: {len(PICTURE)}|set-cookie: who=me"
    async with serving(a=answering(head, PICTURE)) as host:
        fetcher = Fetcher(limits(), TLS)
        for _ in range(2):
            await fetcher.fetch(reference(f"{host.url}/a"))
        await fetcher.close()
    assert len(host.heads) == 2
    assert "cookie" not in "".join(host.heads).lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed(status: int) -> None:
    async with serving(a=redirecting("/b?x=1", status), b=good(PICTURE)) as host:
        assert (await fetch(f"{host.url}/a")).data == PICTURE


async def test_redirects_end_at_the_limit() -> None:
    hops = {f"hop{number}": redirecting(f"/hop{number + 1}") for number in range(3)}
    async with serving(None, **hops, hop3=good(PICTURE)) as host:
        assert (await fetch(f"{host.url}/hop0", limits(redirects=3))).data == PICTURE
        error = await refused(f"{host.url}/hop0", limits(redirects=2))
    assert error.code == "too_many_redirects"
    assert "2" in error.message


async def test_a_redirect_in_a_circle_ends() -> None:
    async with serving(a=redirecting("/a")) as host:
        assert (await refused(f"{host.url}/a")).code == "too_many_redirects"
        assert len(host.heads) == 4


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("file:///etc/hostname", "unsupported_scheme"),
        ("ftp://example.com/", "unsupported_scheme"),
        ("http://me:secret@127.0.0.1/", "invalid_url"),
        ("http://127.0.0.1:99999/", "invalid_url"),
        ("http://127.0.0.1:0/", "invalid_url"),
        ("http://[::1", "invalid_url"),
    ],
)
async def test_each_redirect_passes_the_gate(location: str, code: str) -> None:
    async with serving(a=redirecting(location)) as host:
        assert (await refused(f"{host.url}/a")).code == code


@pytest.mark.parametrize(
    ("address", "code"),
    [
        ("file:///etc/hostname", "unsupported_scheme"),
        ("http://me:secret@127.0.0.1/", "invalid_url"),
        ("http://me@127.0.0.1/", "invalid_url"),
        ("http://127.0.0.1\\@10.0.0.1/", "invalid_url"),
        ("http://127.0.0.1/\\10.0.0.1", "invalid_url"),
        ("http://", "invalid_url"),
        ("http:///path", "invalid_url"),
        ("http://a..b/", "invalid_url"),
        (f"http://{'a' * 64}.com/", "invalid_url"),
        (f"http://{'a.' * 127}com/", "invalid_url"),
        ("http://127.0.0.1:99999/", "invalid_url"),
        ("http://127.0.0.1:0/", "invalid_url"),
        ("http://127.0.0.1:port/", "invalid_url"),
        ("http://[::1/", "invalid_url"),
        ("http://\u0130\u2024.com/", "invalid_url"),
        ("http://127.0.0.1/a\nb", "invalid_url"),
        ("http://127.0.0.1/" + "a" * 8192, "invalid_url"),
    ],
)
async def test_an_address_that_is_none_is_refused_without_a_connection(
    address: str, code: str
) -> None:
    assert (await refused(address)).code == code


@pytest.mark.parametrize(
    ("status", "retryable"), [(404, False), (403, False), (204, False), (429, True), (503, True)]
)
async def test_a_status_is_passed_on_with_the_host(status: int, retryable: bool) -> None:
    behaviour = answering(f"HTTP/1.1 {status} Oh|content-length: 0")
    async with serving(a=behaviour) as host:
        error = await refused(f"{host.url}/a?token=secret")
    assert (error.code, error.retryable) == ("fetch_status", retryable)
    assert str(status) in error.message
    assert "127.0.0.1" in error.message


async def test_a_redirect_without_a_place_is_a_status() -> None:
    async with serving(a=answering("HTTP/1.1 302 Found|content-length: 0")) as host:
        assert (await refused(f"{host.url}/a")).code == "fetch_status"


async def test_a_length_over_the_limit_is_refused_before_the_body() -> None:
    async with serving(a=answering(f"HTTP/1.1 200 OK|content-length: {LIMIT + 1}")) as host:
        error = await refused(f"{host.url}/a")
    assert isinstance(error, ImageTooLarge)
    assert f"{LIMIT + 1} bytes; the limit is {LIMIT}" in error.message


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    async with serving(a=good(bytes(LIMIT))) as host:
        assert len((await fetch(f"{host.url}/a")).data) == LIMIT


async def test_an_endless_body_is_cut_at_the_limit() -> None:
    num_sent = 0

    async def endless(stream: anyio.abc.ByteStream, _: str) -> None:
        nonlocal num_sent
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(bytes(10_000))
            num_sent += 1

    async with serving(a=endless) as host:
        error = await refused(f"{host.url}/a")
    assert isinstance(error, ImageTooLarge)
    assert str(LIMIT) in error.message
    assert num_sent < 2000


@pytest.mark.parametrize("encoding", ["gzip", "br", "gzip, gzip"])
async def test_a_packed_body_is_not_unpacked(encoding: str) -> None:
    bomb = gzip.compress(bytes(5_000_000))[: LIMIT // 2]
    head = f"HTTP/1.1 200 OK|content-length: {len(bomb)}|content-encoding: {encoding}"
    async with serving(a=answering(head, bomb)) as host:
        assert (await refused(f"{host.url}/a")).code == "fetch_encoding"


@pytest.mark.parametrize(
    "behaviour",
    [
        answering(f"HTTP/1.1 200 OK|content-length: {len(PICTURE) + 9}", PICTURE),
        answering("HTTP/1.1 200 OK|content-length: many"),
        answering("HTTP/1.1 200 OK|content-length: -5"),
        answering("HTTP/1.1 200 OK|transfer-encoding: chunked", b"zz\r\n"),
        answering("HTTP/1.1 200 OK|x: " + "y" * 200_000),
        answering("HTTP/9 what"),
        answering("220 smtp.example.com"),
    ],
)
async def test_a_host_that_breaks_the_protocol_is_to_blame(behaviour: Behaviour) -> None:
    async with serving(a=behaviour) as host:
        error = await refused(f"{host.url}/a")
    assert (error.code, error.retryable) == ("fetch_failed", True)


async def test_a_connection_that_ends_without_a_word_is_a_failed_fetch() -> None:
    async def leave(stream: anyio.abc.ByteStream, _: str) -> None:
        await stream.aclose()

    async with serving(a=leave) as host:
        assert (await refused(f"{host.url}/a")).code == "fetch_failed"


async def test_a_port_where_nobody_listens_is_a_failed_fetch() -> None:
    async with serving() as host:
        url = host.url
    error = await refused(f"{url}/secret")
    assert (error.code, error.retryable) == ("fetch_failed", True)


async def _say_nothing(stream: anyio.abc.ByteStream, _: str) -> None:
    await stream.receive()


async def _drip(stream: anyio.abc.ByteStream, _: str) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.01)


async def _drip_head(stream: anyio.abc.ByteStream, _: str) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await stream.send(b"x: y\r\n")
        await anyio.sleep(0.01)


async def _redirect_slowly(stream: anyio.abc.ByteStream, _: str) -> None:
    await anyio.sleep(0.06)
    await redirecting("/a")(stream, "")


@pytest.mark.parametrize("behaviour", [_say_nothing, _drip, _drip_head, _redirect_slowly])
async def test_one_limit_of_time_holds_over_everything(behaviour: Behaviour) -> None:
    async with serving(a=behaviour) as host:
        with anyio.fail_after(2):
            error = await refused(f"{host.url}/a", limits(seconds=0.15, redirects=20))
    assert (error.code, error.retryable) == ("fetch_timeout", True)
    assert "0.15 s" in error.message


async def test_a_slow_host_holds_up_nobody_else() -> None:
    async with serving(slow=_say_nothing, a=good(PICTURE)) as host:
        fetcher = Fetcher(limits(), TLS)
        async with anyio.create_task_group() as group:
            group.start_soon(fetcher.fetch, reference(f"{host.url}/slow"))
            with anyio.fail_after(2):
                image = await fetcher.fetch(reference(f"{host.url}/a"))
            group.cancel_scope.cancel()
        await fetcher.close()
    assert image.data == PICTURE
