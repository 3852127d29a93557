"""Bytes in, damaged bytes out: what can happen to any file, whatever its format."""

from collections.abc import Callable, Sequence
from random import Random

EXTREMES = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_MAX_BYTES = 1 << 16  # of an input; more would only take time
_MAX_REPEATS = 300


def flip_bits(data: bytes, chance: Random) -> bytes:
    """One to sixteen bits, anywhere."""
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def set_number(data: bytes, chance: Random) -> bytes:
    """One to four bytes become a number at the edge of its type, or near the length."""
    width = chance.choice((1, 2, 4))
    number = chance.choice((*EXTREMES, len(data), len(data) - 1, chance.randrange(1 << 16)))
    start = chance.randrange(len(data))
    order = chance.choice(("big", "little"))
    field = (number % (1 << 8 * width)).to_bytes(width, "big" if order == "big" else "little")
    return data[:start] + field + data[start + width :]


def cut_off(data: bytes, chance: Random) -> bytes:
    """Nothing behind some place."""
    return data[: chance.randrange(len(data))]


def cut_out(data: bytes, chance: Random) -> bytes:
    """Without a piece in the middle."""
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def repeat(data: bytes, chance: Random) -> bytes:
    """A piece comes again, perhaps very often."""
    start, end = _span(data, chance)
    times = chance.choice((1, 2, _MAX_REPEATS))
    return data[:end] + data[start:end] * times + data[end:]


def blank(data: bytes, chance: Random) -> bytes:
    """A piece is all of one value."""
    start, end = _span(data, chance)
    return data[:start] + bytes([chance.choice((0, 0xFF, 0x20))]) * (end - start) + data[end:]


def insert(data: bytes, chance: Random) -> bytes:
    """Some bytes more."""
    start = chance.randrange(len(data) + 1)
    return data[:start] + chance.randbytes(chance.choice((1, 2, 4, 64))) + data[start:]


def append(data: bytes, chance: Random) -> bytes:
    """Something hangs at the end: noise, or a page."""
    return data + chance.choice((chance.randbytes(40), b"<script>alert(1)</script>", data))


_WAYS: Sequence[Callable[[bytes, Random], bytes]] = (
    flip_bits,
    flip_bits,
    set_number,
    set_number,
    cut_off,
    cut_out,
    repeat,
    blank,
    insert,
    append,
)


def mutate(data: bytes, chance: Random) -> bytes:
    """Damage in one to four ways, one after the other."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        if data:
            data = chance.choice(_WAYS)(data, chance)
    return data[:_MAX_BYTES]


def splice(first: bytes, second: bytes, chance: Random) -> bytes:
    """The beginning of one and the end of another."""
    return first[: chance.randrange(len(first) + 1)] + second[chance.randrange(len(second) + 1) :]


def _span(data: bytes, chance: Random) -> tuple[int, int]:
    start = chance.randrange(len(data))
    return start, min(len(data), start + chance.choice((1, 4, 16, 64, 1024)))
