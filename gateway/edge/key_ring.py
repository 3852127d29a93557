"""The keys that are let in, read from their file again whenever it changes."""

import hmac
import logging
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from gateway.edge.keys import ApiKey, KeyFileError, digest_of, parse_keys
from gateway.edge.limits import Account, Clock
from gateway.errors import InvalidKey, KeyNotAllowed

log = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
_LOOK_SECONDS = 1.0
_MAX_FILE_BYTES = 1 << 20

Stamp = tuple[int, int, int]  # inode, time of the last change, size


@dataclass(slots=True)
class _Entry:
    key: ApiKey
    account: Account


class KeyRing:
    """Owned by the event loop.

    Keys are looked up by a digest under a secret of this process, so how long a comparison takes
    tells nothing about what the file holds. Accounts outlive a new file as long as their key is in
    it; requests in work go on when their key is gone.
    """

    def __init__(self, path: Path, clock: Clock = time.monotonic) -> None:
        """Raises KeyFileError if the file cannot be used."""
        self._path = path
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._entries: dict[bytes, _Entry] = {}
        self._looked_at = clock()
        self._stamp = self._look()
        self._read()

    def account(self, key: bytes, path: str) -> Account:
        """The account of a key that may use a route.

        Raises:
            InvalidKey: there is no such key.
            KeyNotAllowed: it is not for this route.
        """
        self._keep_up()
        entry = self._entries.get(self._mark(digest_of(key)))
        if entry is None:
            raise InvalidKey("the API key is not known here")
        wanted = "metrics" if path == METRICS_PATH else "api"
        if entry.key.scope not in (wanted, "all"):
            raise KeyNotAllowed(f"this API key is for {entry.key.scope} alone")
        return entry.account

    def _mark(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def _keep_up(self) -> None:
        """Read the file again if it changed; looked after at most once a second."""
        now = self._clock()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._read()
        except KeyFileError as error:
            log.error("the keys stay as they were: FOVEA_API_KEYS_FILE: %s", error)

    def _look(self) -> Stamp | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self) -> None:
        keys = parse_keys(self._text())
        before = self._entries
        self._entries = {}
        for key in keys:
            mark = self._mark(key.digest)
            if mark in before:
                account = before[mark].account
                account.change(key.limits)
            else:
                account = Account(mark[:16], key.limits, self._clock)
            self._entries[mark] = _Entry(key, account)
        log.info("%d API keys are let in", len(keys))

    def _text(self) -> str:
        try:
            with self._path.open("rb") as file:
                data = file.read(_MAX_FILE_BYTES + 1)
            if len(data) > _MAX_FILE_BYTES:
                raise KeyFileError(f"it has more than {_MAX_FILE_BYTES} bytes")
            return data.decode("ascii")
        except OSError as error:
            raise KeyFileError(f"it cannot be read: {error.strerror}") from error
        except UnicodeError as error:
            raise KeyFileError("it is no plain text") from error
