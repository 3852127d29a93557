"""The text of FOVEA_API_KEYS_FILE in, `ApiKey`s out; and a new key with the line for that file.

A line is a name, the key's SHA-256 and what the key may use; what a line leaves out is not limited:

    alice sha256:9f86...0a08 requests_per_minute=600 images_per_minute=200 concurrency=8

A key is 256 random bits, so one round of a fast hash is right: to find a key by its hash is as
hopeless as to guess it. Slow hashes are for what people think up, and would cost each request.
"""

import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal, get_args

Scope = Literal["api", "metrics", "all"]  # which routes a key opens

_PREFIX = "fovea-"  # so that tools which look for leaked keys can tell one
_NUM_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_NUMBER = re.compile(r"[1-9][0-9]{0,11}")
_LIMITS = ("requests_per_minute", "images_per_minute", "tokens_per_minute", "concurrency")


class KeyFileError(Exception):
    """The file of keys cannot be used; the message names the line, and nothing that is in it."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """What a key may use; 0 is no limit."""

    requests_per_minute: int = 0
    images_per_minute: int = 0
    tokens_per_minute: int = 0  # prompt and answer together
    concurrency: int = 0  # requests in work at once


@dataclass(frozen=True, slots=True)
class ApiKey:
    """One line of the file."""

    name: str
    digest: bytes  # SHA-256 of the key
    scope: Scope
    limits: KeyLimits


def digest_of(key: bytes) -> bytes:
    """What the file holds of a key, 32 bytes."""
    return sha256(key).digest()


def new_key(name: str, words: Iterable[str] = ()) -> tuple[str, str]:
    """A fresh key and the line for the file; the key itself is kept nowhere.

    Args:
        name: what the operator calls it.
        words: limits and scope as in the file, for example `concurrency=8`.

    Raises:
        KeyFileError: the name or a word is not of the file's form.
    """
    key = _PREFIX + secrets.token_urlsafe(_NUM_RANDOM_BYTES)
    line = " ".join((name, f"sha256:{digest_of(key.encode()).hex()}", *words))
    parse_keys(line)
    return key, line


def parse_keys(text: str) -> tuple[ApiKey, ...]:
    """Read a whole file; empty lines and those that begin with # count for nothing.

    Raises:
        KeyFileError: a line is not of the form above, a name or a key comes twice, or there is
            no key at all: more likely a slip than a wish to let nobody in.
    """
    keys: list[ApiKey] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip() and not line.lstrip().startswith("#"):
            keys.append(_parse_line(line.split(), number))
            _refuse_repeats(keys, number)
    if not keys:
        raise KeyFileError("it holds no key")
    return tuple(keys)


def _refuse_repeats(keys: list[ApiKey], number: int) -> None:
    *before, last = keys
    if any(key.name == last.name for key in before):
        raise KeyFileError(f"line {number}: the name is taken by a line above")
    if any(key.digest == last.digest for key in before):
        raise KeyFileError(f"line {number}: the key is that of a line above")


def _parse_line(words: list[str], number: int) -> ApiKey:
    name, *rest = words
    found = _HASH.fullmatch(rest[0]) if rest else None
    if not _NAME.fullmatch(name) or found is None:
        raise KeyFileError(
            f"line {number}: it should be a name of letters, digits and ._@-, then sha256: and 64 "
            "hexadecimal digits, as `fovea key NAME` prints it"
        )
    scope: Scope = "api"
    limits: dict[str, int] = {}
    for word in rest[1:]:
        setting, _, value = word.partition("=")
        if setting == "scope" and value in get_args(Scope):
            scope = value  # type: ignore[assignment]  # it was just looked up
        elif setting in _LIMITS and setting not in limits and _NUMBER.fullmatch(value):
            limits[setting] = int(value)
        else:
            raise KeyFileError(
                f"line {number}: after the hash come {', '.join(_LIMITS)}, each with = and a whole "
                f"number above 0, and scope= with one of {', '.join(get_args(Scope))}; each once"
            )
    return ApiKey(name, bytes.fromhex(found[1]), scope, KeyLimits(**limits))
