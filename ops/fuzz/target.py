"""What a target of the fuzzer is: it makes an input from chance, and judges what becomes of it."""

from random import Random
from typing import Protocol


class Wrong(Exception):
    """Something that must not happen; the message says what."""


class Target(Protocol):
    """Owned by the process that runs it."""

    def make(self, chance: Random) -> bytes:
        """One input, which depends on nothing but `chance`."""
        ...

    def judge(self, data: bytes) -> str:
        """What came of an input, in a few words that are counted.

        Raises:
            Wrong: a promise was broken.
        """
        ...

    def close(self) -> None:
        """Nothing more is to be judged."""
        ...
