"""A target of the fuzzer that does what no other may."""

import os
import signal
from random import Random

from ops.fuzz.target import Wrong


class PanicException(BaseException):
    """As the bindings of Rust make it."""


class Falling:
    """Its inputs are the digits from 0 on, over and over."""

    def __init__(self) -> None:
        self._digits = {Random(f"1:{NAME}:{index}").random(): index for index in range(10)}

    def make(self, chance: Random) -> bytes:
        return str(self._digits[chance.random()]).encode()

    def judge(self, data: bytes) -> str:
        match data:
            case b"3":
                os.kill(os.getpid(), signal.SIGSEGV)
            case b"5":
                raise Wrong("five is wrong")
            case b"6":
                raise KeyError("six")
            case b"8":
                raise PanicException("eight")
        return "well"

    def close(self) -> None:
        pass


NAME = f"{Falling.__module__}:{Falling.__qualname__}"
