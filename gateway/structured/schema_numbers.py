"""A JSON schema in, whether its numbers are ones that the grammar library can stand.

There is no way to stop the library once it has begun, and its own limits do not count these two.
"""

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

# At a range of integers that ends near the least of 64 bits the library turns in a circle, until
# its stack and with it the process ends; as a minimum it refuses such a number by itself.
LEAST_NUMBER = -9.2e18
# The library makes a state for each remainder, of the common multiple where several must hold. It
# takes a quarter of a second for ten thousand, and hours for some millions.
MAX_REMAINDERS = 50_000
_MULTIPLE = "multipleOf"


def reason_against(schema: dict[str, Any]) -> str:
    """Why the schema must not get to the library; empty if it may."""
    numbers = list(_numbers(schema))
    if any(number <= LEAST_NUMBER for _, number in numbers):
        return f"it has a number below {LEAST_NUMBER:g}"
    steps = [_digits(number) for name, number in numbers if name == _MULTIPLE]
    common = 1
    for step in steps:
        common = math.lcm(common, step)
        if common * len(steps) > MAX_REMAINDERS:
            return f"its values of {_MULTIPLE} have too many remainders"
    return ""


def _numbers(schema: dict[str, Any]) -> Iterator[tuple[str, int | float]]:
    """Every number in it, with the name of the field that it is in."""
    waiting: list[tuple[str, Any]] = [("", schema)]
    while waiting:
        name, tree = waiting.pop()
        if isinstance(tree, dict):
            waiting += tree.items()
        elif isinstance(tree, list):
            waiting += [(name, each) for each in tree]
        elif isinstance(tree, int | float) and not isinstance(tree, bool):
            yield name, tree


def _digits(number: float) -> int:
    """The number without its sign, its point and zeros at its end; 1 for 0, which is refused."""
    return int("".join(map(str, Decimal(repr(number)).as_tuple().digits)).rstrip("0") or "1")
