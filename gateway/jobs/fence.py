"""What was in flight when workers died: who is under suspicion, and who is let in no more."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b

from gateway.errors import CallerError, ImageRejected
from workers.messages import GenerateJob

FENCE_SECONDS = 300.0
MAX_RECORDS = 4096
SUSPICION_SECONDS = 3600.0
_SHARE_AFTER_TWO = 0.1  # deaths, of the fence's time, where the last was a kill from outside

Key = bytes  # of what a job is about: an image's source digest, or `prompt_key`
INNOCENT: Key = b""  # never under suspicion


class RequestFenced(CallerError):
    """The prompt was in flight, by itself at last, when workers died twice.

    That does not prove the caller's fault, but a 5xx would be sent again by clients and balancers,
    and would end one replica after the other.
    """

    status = 422
    code = "request_fenced"


class ImageFenced(ImageRejected):
    """The same of an image that was being encoded."""

    status = 422
    code = "image_fenced"


@dataclass(frozen=True, slots=True)
class _Record:
    num_deaths: int
    last_death_at: float
    fenced_until: float


class Fence:
    """Remembers for a bounded time, in a bounded table. Owned by the event loop.

    Whatever a worker held when it died is under suspicion, and is tried again by itself, see
    `gateway.jobs.ward`. If a worker dies of that, the culprit is known: it is fenced, and the
    death does not count for whatever else was there. An end that goes well clears it.

    A worker that was killed from outside may have been killed for another reason, by a system
    that is short of memory or by a person. That fences for a tenth of the time, and with each
    further such death for twice as long, up to all of it: one that kills is soon as well fenced
    as any, and one that is innocent has nearly always ended well before.
    """

    def __init__(
        self, fence_seconds: float = FENCE_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`fence_seconds`: for how long a key is refused."""
        self._fence_seconds = fence_seconds
        self._clock = clock
        self._records: OrderedDict[Key, _Record] = OrderedDict()  # the latest death last

    @property
    def num_fenced(self) -> int:
        """Keys that are refused now."""
        now = self._clock()
        return sum(record.fenced_until > now for record in self._records.values())

    def num_deaths(self, key: Key) -> int:
        """Deaths at which a job of this key was present; 0 once it is cleared or forgotten."""
        record = self._records.get(key)
        if record is None or self._clock() - record.last_death_at > SUSPICION_SECONDS:
            return 0
        return record.num_deaths

    def seconds_left(self, key: Key) -> int:
        """For how many more seconds a key is refused, rounded up; 0 if it is let in."""
        record = self._records.get(key)
        return 0 if record is None else max(0, math.ceil(record.fenced_until - self._clock()))

    def check_prompt(self, key: Key) -> None:
        """Raise RequestFenced if workers died of the prompt lately."""
        if seconds := self.seconds_left(key):
            refusal = RequestFenced(
                f"twice a worker died at work on this request; it is refused for {seconds} s more"
            )
            refusal.retry_after_seconds = seconds
            raise refusal

    def check_image(self, key: Key, index: int, param: str) -> None:
        """Raise ImageFenced if workers died of the image lately; `param` is the field it is in."""
        if seconds := self.seconds_left(key):
            refusal = ImageFenced(
                f"twice a worker died while it was encoded; it is refused for {seconds} s more",
                index=index,
                stage="encode",
                param=param,
            )
            refusal.retry_after_seconds = seconds
            raise refusal

    def judge(self, present: Iterable[Key], tried: Key, *, was_killed: bool = False) -> Key:
        """Take note of a worker's death.

        Args:
            present: the keys of all jobs that it held.
            tried: the key of those that were there by themselves, or on trial; else `INNOCENT`.
            was_killed: from outside.

        Returns:
            what the worker died of; `INNOCENT` if that is not known.
        """
        if num_deaths := self.num_deaths(tried):
            share = _share_after_kill(num_deaths + 1) if was_killed else 1.0
            self._note(tried, self._clock() + share * self._fence_seconds)
            return tried
        for key in present:
            if key != INNOCENT:
                self._note(key, 0.0)
        return INNOCENT

    def _note(self, key: Key, fenced_until: float) -> None:
        self._records[key] = _Record(self.num_deaths(key) + 1, self._clock(), fenced_until)
        self._records.move_to_end(key)
        if len(self._records) > MAX_RECORDS:
            self._records.popitem(last=False)

    def acquit(self, key: Key) -> None:
        """A job of this key has ended well."""
        self._records.pop(key, None)


def _share_after_kill(num_deaths: int) -> float:
    """Of the fence's time, which is all of it after a few deaths."""
    num_doublings = min(num_deaths - 2, 10)  # more would not matter, and might overflow
    return min(1.0, _SHARE_AFTER_TWO * 2.0**num_doublings)


def prompt_key(job: GenerateJob) -> Key:
    """The same for every job that has an engine read the same prompt for the same tenant."""
    digest = blake2b(digest_size=32, key=b"prompt")
    digest.update(len(job.salt).to_bytes(4, "big") + job.salt)
    digest.update(len(job.token_ids).to_bytes(4, "big") + job.token_ids)
    for span in job.spans:
        digest.update(span.start.to_bytes(4, "big") + span.identity)
    return digest.digest()
