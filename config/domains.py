"""The text of FOVEA_MEDIA_ALLOWED_DOMAINS in, an `AllowedDomains` out."""

import re
from dataclasses import dataclass
from ipaddress import ip_address

import idna

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_BRACKETED = re.compile(r"\[([0-9a-f:.]+)\]", re.IGNORECASE)  # IPv6 as URLs spell it
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")  # as its last part it makes a name an IP address


@dataclass(frozen=True, slots=True)
class AllowedDomains:
    """Hosts that images may come from; none named means all."""

    names: frozenset[str]  # exact, as `plain_host` gives them
    suffixes: tuple[str, ...]  # ".b.example" stands for every name below b.example

    def covers(self, host: str) -> bool:
        """Whether images may come from a host, named as in a URL, in ASCII."""
        if not self.names and not self.suffixes:
            return True
        plain = plain_host(host)
        return plain in self.names or plain.endswith(self.suffixes)


def parse_domains(text: str) -> AllowedDomains:
    """Read `a.example,*.b.example,192.0.2.7,[2001:db8::7]` and the like; empty allows all.

    Raises:
        ValueError: an entry is neither a host name, `*.` and a host name, nor an IP address; or the
            text is not empty, and yet names none.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if text and not entries:  # a list that came out empty by mistake shall not allow all
        raise ValueError("no host is named; leave it empty to allow all")
    wild = [entry[2:] for entry in entries if entry.startswith("*.")]
    return AllowedDomains(
        names=frozenset(_parse_host(entry) for entry in entries if not entry.startswith("*.")),
        suffixes=tuple(f".{_parse_name(name)}" for name in wild),
    )


def plain_host(host: str) -> str:
    """One spelling for each host: lower case, no dot at the end, IP addresses in short form."""
    host = host.lower().removesuffix(".")
    try:
        return ip_address(host).compressed
    except ValueError:
        return host


def _parse_host(entry: str) -> str:
    bracketed = _BRACKETED.fullmatch(entry)
    if "%" in entry:  # a zone of IPv6: no URL with one is taken
        raise ValueError(f"{entry!r} is not a host name or an IP address")
    try:
        return ip_address(bracketed[1] if bracketed else entry).compressed
    except ValueError:
        return _parse_name(entry)


def _parse_name(name: str) -> str:
    plain = name.lower().removesuffix(".")
    if not plain.isascii():
        try:
            plain = idna.encode(plain).decode("ascii")
        except UnicodeError as error:
            raise ValueError(f"{name!r} is not a host name") from error
    if not _NAME.fullmatch(plain) or _NUMBER.fullmatch(plain.rpartition(".")[2]):
        raise ValueError(f"{name!r} is not a host name, *. and a host name, or an IP address")
    return plain
