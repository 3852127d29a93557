"""An `ImageRef` in, a `SourceImage` out: the encoded bytes of one image, wherever they come from.

Whatever a remote host does ends as `ImageRejected` or `ImageTooLarge`; its faults are never ours.
"""

import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import httpcore
import httpx

from config.domains import AllowedDomains, parse_domains
from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.images.guard import AddressForbidden, GuardedNetwork, Lookup, SystemLookup
from gateway.images.local_file import FileTooLarge, FileUnavailable, read_below
from gateway.prompts.prompt import ImageRef, is_file_address

MAX_URL_CHARS = 8192
_MAX_HOST_CHARS = 100  # of a host in an error message
_MAX_NAME_CHARS = 253  # of a host name, by the rules of DNS
# What libraries read differently is no host: escapes, zones of IPv6, blanks, empty labels.
_HOST = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?|[0-9a-f:.]*:[0-9a-f:.]*", re.I)
_MAX_PORT = 65_535
_KEEP_ALIVE_SECONDS = 5.0
_HEADERS = (
    ("user-agent", "fovea/0.1 (image fetch)"),  # some hosts refuse requests that bear none
    ("accept", "image/*,*/*;q=0.5"),
    # An unpacked body could be a thousand times the bytes that were counted on the wire.
    ("accept-encoding", "identity"),
)
_REDIRECTS = (301, 302, 303, 307, 308)
_RETRYABLE = (408, 425, 429)

_HOST_FAULTS = (
    httpcore.NetworkError,
    httpcore.ProtocolError,
    httpcore.TimeoutException,  # the system's own, long after ours
    OSError,
    UnicodeError,
)
_FAILURES: tuple[tuple[type[Exception], str], ...] = (
    (socket.gaierror, "has a name that cannot be looked up"),
    (httpcore.ConnectError, "cannot be reached"),
    (httpcore.RemoteProtocolError, "broke off its answer"),
    (httpcore.ReadError, "broke off its answer"),
    (OSError, "cannot be reached"),
)


@dataclass(frozen=True, slots=True)
class SourceImage:
    """One encoded image; what kind it is, its bytes will tell."""

    index: int
    param: str
    data: bytes


def check_address(address: str, ref: ImageRef, allowed: AllowedDomains) -> httpx.URL:
    """The one gate that every URL passes, a caller's own and each redirect's.

    Where its host leads, `gateway/images/guard.py` looks at when it connects.

    Raises:
        ImageRejected: code invalid_url, unsupported_scheme or domain_not_allowed.
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
    host = url.raw_host.decode("ascii")
    if len(host) > _MAX_NAME_CHARS or not _HOST.fullmatch(host):
        raise refuse("the address names no valid host")
    if url.port is not None and not 1 <= url.port <= _MAX_PORT:
        raise refuse(f"the port is {url.port}; it should be 1 to {_MAX_PORT}")
    if not allowed.covers(host):
        message = f"host {_host(url)} is not among those that images may come from"
        raise refuse(message, code="domain_not_allowed")
    return url


class Fetcher:
    """Fetches images; owns the connections, so it is closed with `close`."""

    def __init__(
        self,
        limits: ImageSettings,
        tls: ssl.SSLContext | None = None,
        lookup: Lookup | None = None,
        network: httpcore.AsyncNetworkBackend | None = None,
    ) -> None:
        """`tls` says whom to trust; without it, the authorities that httpx ships.

        `lookup` finds the addresses of hosts and `network` connects to them; without them, the
        system's.
        """
        self._limits = limits
        self._allowed = parse_domains(limits.media_allowed_domains)
        self._lookup = lookup or SystemLookup(limits.fetch_connections)
        # The layer below httpx: it knows no proxy, no netrc, no cookie and no redirect.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=tls or httpx.create_ssl_context(trust_env=False),
            max_connections=limits.fetch_connections,
            keepalive_expiry=_KEEP_ALIVE_SECONDS,
            network_backend=GuardedNetwork(
                self._lookup, allow_private=limits.media_allow_private, network=network
            ),
        )

    async def close(self) -> None:
        await self._pool.aclose()
        self._lookup.close()

    async def fetch(self, ref: ImageRef) -> SourceImage:
        """Get the bytes of one image; those of a data URI are there already.

        Raises:
            ImageRejected: the host cannot or may not be reached, answers something else, or
                takes too long; the file cannot or may not be read.
            ImageTooLarge: the body or the file is over the limit in bytes.
        """
        if isinstance(ref.source, bytes):
            return SourceImage(ref.index, ref.param, ref.source)
        assert ref.source is not None  # one that is only named is looked up, not fetched
        try:
            with anyio.fail_after(self._limits.fetch_seconds):
                data = await self._get(ref, ref.source)
        except TimeoutError as error:
            seconds = self._limits.fetch_seconds
            raise _refused(
                ref, f"not fetched within {seconds:g} s", code="fetch_timeout", retryable=True
            ) from error
        return SourceImage(ref.index, ref.param, data)

    async def _get(self, ref: ImageRef, address: str) -> bytes:
        if self._limits.media_folder and is_file_address(address):
            return await self._read_local(ref, address)
        return await self._follow(ref, address)

    async def _read_local(self, ref: ImageRef, address: str) -> bytes:
        read = partial(
            read_below, Path(self._limits.media_folder), address, self._limits.max_image_bytes
        )
        try:
            return await anyio.to_thread.run_sync(read, abandon_on_cancel=True)
        except FileUnavailable as error:
            # One code and the same words, so that they tell nothing about other files.
            message = "no file that may be read is at the address"
            raise _refused(ref, message, code="file_unavailable") from error
        except FileTooLarge as error:
            raise self._too_large(ref, f"more than {self._limits.max_image_bytes}") from error

    async def _follow(self, ref: ImageRef, address: str) -> bytes:
        url = check_address(address, ref, self._allowed)
        for _ in range(self._limits.fetch_redirects + 1):
            async with self._open(ref, url) as response:
                head = httpx.Headers(response.headers)
                location = head.get("location")
                if response.status not in _REDIRECTS or location is None:
                    self._check_head(ref, url, response.status, head)
                    return await self._read(ref, response)
            url = check_address(_join(url, location, ref), ref, self._allowed)
        raise _refused(
            ref,
            f"more redirects than the limit of {self._limits.fetch_redirects}",
            code="too_many_redirects",
        )

    @asynccontextmanager
    async def _open(self, ref: ImageRef, url: httpx.URL) -> AsyncIterator[httpcore.Response]:
        """Send the request and read the head; what fails until the end of the body is ours."""
        target = httpcore.URL(
            scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path
        )
        headers = (("host", url.netloc), *_HEADERS)
        # Certificates know no dot at the end of a name, RFC 6066.
        extensions = {"sni_hostname": url.raw_host.decode("ascii").removesuffix(".")}
        try:
            async with self._pool.stream(
                "GET", target, headers=headers, extensions=extensions
            ) as response:
                yield response
        except AddressForbidden as error:
            message = f"host {_host(url)} is outside the public internet; nothing is fetched there"
            raise _refused(ref, message, code="address_forbidden") from error
        except _HOST_FAULTS as error:
            what = next((words for kind, words in _FAILURES if isinstance(error, kind)), "failed")
            raise _refused(
                ref, f"host {_host(url)} {what}", code="fetch_failed", retryable=True
            ) from error

    async def _read(self, ref: ImageRef, response: httpcore.Response) -> bytes:
        data = bytearray()
        async for chunk in response.aiter_stream():
            data += chunk
            if len(data) > self._limits.max_image_bytes:
                raise self._too_large(ref, f"more than {self._limits.max_image_bytes}")
        return bytes(data)

    def _check_head(self, ref: ImageRef, url: httpx.URL, status: int, head: httpx.Headers) -> None:
        host = _host(url)
        if status != httpx.codes.OK:
            raise _refused(
                ref,
                f"host {host} answered with status {status}",
                code="fetch_status",
                retryable=status >= 500 or status in _RETRYABLE,
            )
        if head.get("content-encoding", "identity").lower() != "identity":
            raise _refused(
                ref, f"host {host} sent a packed body, which is not taken", code="fetch_encoding"
            )
        num_bytes = int(head.get("content-length", 0))  # digits: the client checked
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
