"""How much one API key may use, and what it has used; refuses before any work is done."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Literal

from starlette.types import Scope

from gateway.edge.keys import KeyLimits
from gateway.errors import BadRequest, RateLimited

Kind = Literal["requests", "images", "tokens"]
Clock = Callable[[], float]  # seconds

_KINDS: tuple[Kind, ...] = ("requests", "images", "tokens")
_MINUTE_SECONDS = 60.0
# When a place falls free nobody knows; the shortest wait that can be told.
_PLACE_SECONDS = 1


class Bucket:
    """Fills evenly, by its limit each minute and never above it; starts full. Owned by an account.

    What was used without asking before may take it below zero; it fills up from there.
    """

    def __init__(self, per_minute: int, clock: Clock) -> None:
        self.per_minute = per_minute
        self._clock = clock
        self._level = float(per_minute)
        self._filled_at = clock()

    @property
    def level(self) -> float:
        """What may be used now."""
        now = self._clock()
        flow = (now - self._filled_at) * self.per_minute / _MINUTE_SECONDS
        self._level = min(self.per_minute, self._level + flow)
        self._filled_at = now
        return self._level

    def change(self, per_minute: int) -> None:
        """Another limit from now on; what was used before stays used."""
        used = self.per_minute - self.level
        self.per_minute = per_minute
        self._level = per_minute - used

    def use(self, amount: int) -> None:
        """Take out, be it there or not."""
        self._level = self.level - amount

    def seconds_until(self, amount: float) -> float:
        """Time until so much may be used."""
        return max(0.0, amount - self.level) * _MINUTE_SECONDS / self.per_minute


class Account:
    """What is counted of one key. Owned by the event loop."""

    def __init__(self, tenant: bytes, limits: KeyLimits, clock: Clock = time.monotonic) -> None:
        """`tenant` keeps what is cached apart: no two keys have the same."""
        self.tenant = tenant
        self._limits = limits
        self._clock = clock
        self._num_running = 0
        self._buckets = {
            kind: Bucket(most, clock) for kind, most in self._per_minute(limits) if most
        }

    @staticmethod
    def _per_minute(limits: KeyLimits) -> list[tuple[Kind, int]]:
        return list(zip(_KINDS, astuple(limits), strict=False))

    def change(self, limits: KeyLimits) -> None:
        """Other limits from now on; what was used before stays used."""
        for kind, most in self._per_minute(limits):
            if kind in self._buckets and most:
                self._buckets[kind].change(most)
            elif most:
                self._buckets[kind] = Bucket(most, self._clock)
            else:
                self._buckets.pop(kind, None)
        self._limits = limits

    @contextmanager
    def request(self) -> Iterator[None]:
        """Count a request, and hold one of the places while it is in work.

        Raises:
            RateLimited: there is no place, or a limit of the minute is used up.
        """
        most = self._limits.concurrency
        if most and self._num_running >= most:
            raise RateLimited(
                f"this key has {self._num_running} requests in work; its limit is {most}",
                kind="concurrency",
                retry_after_seconds=_PLACE_SECONDS,
            )
        self._check("tokens", 1)
        self._take("requests", 1)
        self._num_running += 1
        try:
            yield
        finally:
            self._num_running -= 1

    def take_images(self, num_images: int) -> None:
        """Count images before anything is done with them.

        Raises:
            BadRequest: they are more than the key may ever send in a minute.
            RateLimited: they are more than are left of this minute.
        """
        bucket = self._buckets.get("images")
        if bucket is not None and num_images > bucket.per_minute:
            raise BadRequest(
                f"the request has {num_images} images; this key may send {bucket.per_minute} "
                "per minute",
                param="messages",
                code="too_many_images",
            )
        self._take("images", num_images)

    def charge_tokens(self, num_tokens: int) -> None:
        """Count what a request has used, which nobody knows before; it is never refused."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].use(num_tokens)

    def headers(self) -> list[tuple[bytes, bytes]]:
        """OpenAI's headers of each limit per minute: how much, how much is left, when it is full.

        An account without limits has none.
        """
        lines = []
        for kind, bucket in self._buckets.items():
            left = max(0, math.floor(bucket.level))
            lines += [
                (f"x-ratelimit-limit-{kind}", str(bucket.per_minute)),
                (f"x-ratelimit-remaining-{kind}", str(left)),
                (f"x-ratelimit-reset-{kind}", _spell(bucket.seconds_until(bucket.per_minute))),
            ]
        return [(name.encode(), value.encode()) for name, value in lines]

    def _take(self, kind: Kind, amount: int) -> None:
        self._check(kind, amount)
        if kind in self._buckets:
            self._buckets[kind].use(amount)

    def _check(self, kind: Kind, amount: int) -> None:
        bucket = self._buckets.get(kind)
        if bucket is None or bucket.level >= amount:
            return
        left = max(0, math.floor(bucket.level))
        wanted = f"{amount} more {kind}" if amount > 1 else f"more {kind}"
        raise RateLimited(
            f"this key may use {bucket.per_minute} {kind} per minute and has {left} left; "
            f"{wanted} can come later",
            kind=kind,
            retry_after_seconds=math.ceil(bucket.seconds_until(amount)),
        )


def account_of(scope: Scope) -> Account:
    """The account that `Gate` found for this request; without keys, one without limits."""
    account: Account | None = scope["state"].get("account")
    return account or Account(b"", KeyLimits())


def _spell(seconds: float) -> str:
    """A time as OpenAI's headers spell it: 350ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{math.ceil(seconds * 1000)}ms"
    minutes, rest = divmod(math.ceil(seconds * 10) / 10, _MINUTE_SECONDS)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"
