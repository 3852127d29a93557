"""Trees of JSON or msgpack in, wrong ones out: values of other types, sizes and places."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any

Place = tuple[Any, Any]  # a list or an object, and an index or a name in it

_DEEP = 200
_LONG = 5000
# Characters and values of what is repeated. Repeats of repeats are soon a hundred megabytes:
# memory of the fuzzer, which says nothing of whom it sends that to.
_MAX_REPEATED = 1 << 21
ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 1.5, -0.0, 1e308, 1e-320, 2**31, 2**53, 2**63 - 1, -(2**63),
    "", " ", "0", "null", "auto", "\0", "\U0001f600", "\u202e\u0000\ufeff", "a" * 101, "x" * _LONG,
    "<|im_start|>system", "<|image_pad|>", "<tool_call>", "{{ 7 * 7 }}", "{% raw %}", "%s%n{}{0}",
    "../../etc/passwd", "file:///etc/passwd", "http://127.0.0.1:1/", "data:image/png;base64,AAAA",
    [], [[]], [None], [0] * 300, {}, {"": {}}, {"type": "text"}, {"a": [1, {"b": None}]},
)  # fmt: skip


def damage(tree: Any, names: Sequence[str], chance: Random) -> Any:
    """Change a tree in one to four places, in place where it can be.

    Args:
        tree: nested lists and dicts.
        names: what fields of such trees are called.
        chance: decides.
    """
    for _ in range(chance.choice((1, 1, 2, 4))):
        places = list(_places(tree))
        if not places:
            return odd_value(chance)
        _change(chance.choice(places), places, names, chance)
    return tree


def odd_value(chance: Random) -> Any:
    """Something of whatever type and size."""
    match chance.randrange(10):
        case 0:
            return _nested(chance.choice((3, 40, _DEEP)), chance.random() < 0.5)
        case 1:
            return chance.randrange(-(2**40), 2**40) if chance.random() < 0.5 else chance.random()
        case 2:
            return "".join(chr(_letter(chance)) for _ in range(chance.choice((1, 8, 130))))
        case _:
            return _copy(chance.choice(ODD_VALUES))


def _change(place: Place, places: Sequence[Place], names: Sequence[str], chance: Random) -> None:
    holder, key = place
    ways: tuple[Callable[[], None], ...] = (
        lambda: holder.__setitem__(key, odd_value(chance)),
        lambda: holder.__setitem__(key, odd_value(chance)),
        lambda: holder.__delitem__(key),
        lambda: holder.__setitem__(key, _copy(_value(chance.choice(places)))),
        lambda: holder.__setitem__(key, _repeated(holder[key], chance)),
        lambda: _add(holder, names, chance),
        lambda: _add(holder, names, chance),
    )
    chance.choice(ways)()


def _repeated(value: Any, chance: Random) -> list[Any]:
    """A value up to 70 times, unless that is too much; no two are one, so each changes alone."""
    times = chance.choice((1, 2, 70))
    enough = _MAX_REPEATED // times
    return [_copy(value) for _ in range(times if _size_of(value, enough) <= enough else 1)]


def _size_of(tree: Any, enough: int) -> int:
    """Characters and values in a tree, or some number above `enough`."""
    size, waiting = 0, [tree]
    while waiting and size <= enough:
        value = waiting.pop()
        size += 1 + (len(value) if isinstance(value, str) else 0)
        if isinstance(value, dict):
            waiting += [*value, *value.values()]
        elif isinstance(value, list):
            waiting += value
    return size


def _add(holder: Any, names: Sequence[str], chance: Random) -> None:
    value = odd_value(chance)
    if isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), value)
    else:
        holder[chance.choice((*names, "unknown", "", "a" * 300, "$ref"))] = value


def _places(tree: Any) -> Iterator[Place]:
    """Every value of the tree but the tree itself."""
    waiting = [tree]
    while waiting:
        holder = waiting.pop()
        if isinstance(holder, Mapping):
            keys: Sequence[Any] = tuple(holder)
        elif isinstance(holder, list):
            keys = range(len(holder))
        else:
            continue
        yield from ((holder, key) for key in keys)
        waiting.extend(holder[key] for key in keys)


def _value(place: Place) -> Any:
    holder, key = place
    return holder[key]


def _copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: _copy(value) for key, value in tree.items()}
    return [_copy(each) for each in tree] if isinstance(tree, list) else tree


def _nested(depth: int, as_lists: bool) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = [tree] if as_lists else {"a": tree}
    return tree


def _letter(chance: Random) -> int:
    """A character of any plane, none of them a surrogate."""
    return chance.choice((chance.randrange(0x20, 0x7F), chance.randrange(0xD800), 0x1F600))
