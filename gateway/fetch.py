"""An `ImageRef` in, a `SourceImage` out: the encoded bytes of one image, wherever they come from.

Whatever a remote host does ends as `ImageRejected` or `ImageTooLarge`; its faults are never ours.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from http.cookiejar import CookieJar, DefaultCookiePolicy

import anyio
import httpx

from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.prompt import ImageRef

MAX_URL_CHARS = 8192
_MAX_HOST_CHARS = 100  # of a host in an error message
_MAX_NAME_CHARS = 253  # of a host name, by the rules of DNS
_MAX_LABEL_CHARS = 63
_MAX_PORT = 65_535
_HEADERS = {
    "user-agent": "fovea/0.1 (image fetch)",  # some hosts refuse requests that bear none
    "accept": "image/*,*/*;q=0.5",
    # An unpacked body could be a thousand times the bytes that were counted on the wire.
    "accept-encoding": "identity",
}
_REDIRECTS = (301, 302, 303, 307, 308)
_RETRYABLE = (408, 425, 429)


_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (httpx.ConnectError, "cannot be reached"),
    (httpx.RemoteProtocolError, "broke off its answer"),
    (httpx.ReadError, "broke off its answer"),
)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One encoded image; what kind it is, its bytes will tell."""

    index: int
    param: str
    data: bytes


def check_address(address: str, ref: ImageRef) -> httpx.URL:
    """The one gate that every address passes, a caller's own and each redirect's.

    Raises:
        ImageRejected: code invalid_url or unsupported_scheme.
    """
    refuse = partial(_refused, ref, code="invalid_url")
    if len(address) > MAX_URL_CHARS:
        raise refuse(f"the address has {len(address)} characters; the limit is {MAX_URL_CHARS}")
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise refuse("the address is not a valid URL") from error
    if url.scheme not in ("http", "https"):
        message = "the address should start with http:// or https://"
        raise _refused(ref, message, code="unsupported_scheme")
    # Parsers disagree about a backslash, and with it about the host.
    if url.userinfo or "\\" in address:
        raise refuse("the address should hold no user name, password or backslash")
    if not _is_host(url.raw_host.decode("ascii")):
        raise refuse("the address names no valid host")
    if url.port is not None and not 1 <= url.port <= _MAX_PORT:
        raise refuse(f"the port is {url.port}; it should be 1 to {_MAX_PORT}")
    return url


def _is_host(host: str) -> bool:
    # One dot at the end is legal; an IPv6 address is one label.
    labels = host.removesuffix(".").split(".")
    return len(host) <= _MAX_NAME_CHARS and all(
        0 < len(label) <= _MAX_LABEL_CHARS for label in labels
    )


class Fetcher:
    """Fetches images; owns the connections, so it is closed with `close`."""

    def __init__(self, limits: ImageSettings, tls: ssl.SSLContext | None = None) -> None:
        """`tls` says whom to trust; without it, the authorities that httpx ships."""
        self._limits = limits
        # No proxy or netrc from the environment; no cookie outlives the response that set it.
        self._client = httpx.AsyncClient(
            headers=_HEADERS,
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
            follow_redirects=False,
            limits=httpx.Limits(max_connections=limits.fetch_connections),
            timeout=None,  # `fetch` has one limit over everything
            trust_env=False,
            verify=tls or True,
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def fetch(self, ref: ImageRef) -> SourceImage:
        """Get the bytes of one image; those of a data URI are there already.

        Raises:
            ImageRejected: the host cannot be reached, answers something else, or takes too long.
            ImageTooLarge: the body is over the limit in bytes.
        """
        if isinstance(ref.source, bytes):
            return SourceImage(ref.index, ref.param, ref.source)
        assert ref.source is not None  # one that is only named is looked up, not fetched
        try:
            with anyio.fail_after(self._limits.fetch_seconds):
                data = await self._follow(ref, ref.source)
        except TimeoutError as error:
            seconds = self._limits.fetch_seconds
            raise _refused(
                ref, f"not fetched within {seconds:g} s", code="fetch_timeout", retryable=True
            ) from error
        return SourceImage(ref.index, ref.param, data)

    async def _follow(self, ref: ImageRef, address: str) -> bytes:
        url = check_address(address, ref)
        for _ in range(self._limits.fetch_redirects + 1):
            async with self._open(ref, url) as response:
                location = response.headers.get("location")
                if response.status_code not in _REDIRECTS or location is None:
                    return await self._read(ref, response)
            url = check_address(_join(url, location, ref), ref)
        raise _refused(
            ref,
            f"more redirects than the limit of {self._limits.fetch_redirects}",
            code="too_many_redirects",
        )

    @asynccontextmanager
    async def _open(self, ref: ImageRef, url: httpx.URL) -> AsyncIterator[httpx.Response]:
        """Send the request and read the head; what fails until the end of the body is ours."""
        try:
            async with self._client.stream("GET", url) as response:
                yield response
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            what = next((words for kind, words in _FAILURES if isinstance(error, kind)), "failed")
            raise _refused(
                ref, f"host {_host(url)} {what}", code="fetch_failed", retryable=True
            ) from error

    async def _read(self, ref: ImageRef, response: httpx.Response) -> bytes:
        self._check_head(ref, response)
        data = bytearray()
        async for chunk in response.aiter_raw():
            data += chunk
            if len(data) > self._limits.max_image_bytes:
                raise self._too_large(ref, f"more than {self._limits.max_image_bytes}")
        return bytes(data)

    def _check_head(self, ref: ImageRef, response: httpx.Response) -> None:
        host, status = _host(response.url), response.status_code
        if status != httpx.codes.OK:
            raise _refused(
                ref,
                f"host {host} answered with status {status}",
                code="fetch_status",
                retryable=status >= 500 or status in _RETRYABLE,
            )
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            raise _refused(
                ref, f"host {host} sent a packed body, which is not taken", code="fetch_encoding"
            )
        num_bytes = int(response.headers.get("content-length", 0))  # digits: the client checked
        if num_bytes > self._limits.max_image_bytes:
            raise self._too_large(ref, str(num_bytes))

    def _too_large(self, ref: ImageRef, num_bytes: str) -> ImageTooLarge:
        return ImageTooLarge(
            f"{num_bytes} bytes; the limit is {self._limits.max_image_bytes}",
            index=ref.index,
            stage="fetch",
            param=ref.param,
        )


def _join(url: httpx.URL, location: str, ref: ImageRef) -> str:
    try:
        return str(url.join(location))
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise _refused(ref, "a redirect names no valid URL", code="invalid_url") from error


def _host(url: httpx.URL) -> str:
    # As it goes over the wire: not every name that has an address can be put into letters again.
    return url.raw_host.decode("ascii")[:_MAX_HOST_CHARS]


def _refused(ref: ImageRef, message: str, *, code: str, retryable: bool = False) -> ImageRejected:
    return ImageRejected(
        message, index=ref.index, stage="fetch", param=ref.param, code=code, retryable=retryable
    )
