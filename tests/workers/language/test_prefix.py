"""Block keys: equal for equal beginnings, another for whatever else keys and values depend on."""

import random
from collections.abc import Callable

import msgspec
import pytest

from workers.language.prefix import BlockKeys
from workers.messages import Region, Span, TensorRef

SECRET = b"s" * 32
BLOCK_TOKENS = 4
NUM_TOKENS = 40
IDS = tuple(range(100, 100 + NUM_TOKENS))


def make_span(start: int, grid: tuple[int, int, int], identity: bytes) -> Span:
    return Span(
        start=start,
        num_tokens=grid[1] * grid[2] // 4,
        grid=grid,
        embeddings=TensorRef(Region(0, 0, 0), "float32", (1, 1, 1)),
        identity=identity,
    )


SPANS = (make_span(6, (1, 4, 6), b"a" * 16), make_span(21, (1, 4, 10), b"b" * 16))


def keys(
    ids: tuple[int, ...] = IDS,
    spans: tuple[Span, ...] = SPANS,
    salt: bytes = b"",
    secret: bytes = SECRET,
) -> list[bytes]:
    return BlockKeys(secret, salt, spans, BLOCK_TOKENS).upto(ids, len(ids) // BLOCK_TOKENS)


def change(index: int, **fields: object) -> tuple[Span, ...]:
    spans = list(SPANS)
    spans[index] = msgspec.structs.replace(spans[index], **fields)
    return tuple(spans)


def num_common(first: list[bytes], second: list[bytes]) -> int:
    """Blocks from the beginning that are equal; no later one may be."""
    common = 0
    while common < len(first) and first[common] == second[common]:
        common += 1
    assert not set(first[common:]) & set(second[common:])
    return common


def test_every_block_has_a_key_of_its_own_of_at_least_128_bits() -> None:
    found = keys()
    assert len(set(found)) == NUM_TOKENS // BLOCK_TOKENS
    assert all(len(key) >= 16 for key in found)
    same = keys(ids=(1,) * NUM_TOKENS, spans=())
    assert len(set(same)) == NUM_TOKENS // BLOCK_TOKENS


def test_equal_prompts_have_equal_keys_in_any_process() -> None:
    assert keys() == keys()
    assert keys()[0].hex() == "aabb1fe170e29f369167cbd40b95b50858a9fd4c5f802a0cedb07aafbb8ceb84"


def test_keys_grow_with_the_tokens() -> None:
    chance = random.Random(0)
    grown = BlockKeys(SECRET, b"", SPANS, BLOCK_TOKENS)
    length = 0
    while length < NUM_TOKENS:
        length = min(NUM_TOKENS, length + chance.randint(1, 9))
        count = length // BLOCK_TOKENS
        assert grown.upto(IDS[:length], count) == keys()[:count]
    assert grown.upto(IDS, 2) == keys()[:2]


CHANGES: dict[str, tuple[Callable[[], list[bytes]], int]] = {
    "first token": (lambda: keys(ids=(1, *IDS[1:])), 0),
    "token": (lambda: keys(ids=(*IDS[:17], 1, *IDS[18:])), 4),
    "identity": (lambda: keys(spans=change(0, identity=b"c" * 16)), 1),
    "later identity": (lambda: keys(spans=change(1, identity=b"c" * 16)), 5),
    "grid": (lambda: keys(spans=change(0, grid=(1, 6, 4))), 1),
    "place": (lambda: keys(spans=change(0, start=7)), 1),
    "length": (lambda: keys(spans=change(0, num_tokens=5)), 2),
    "no image": (lambda: keys(spans=SPANS[1:]), 1),
    "no images": (lambda: keys(spans=()), 1),
    "two images in place of one": (
        lambda: keys(
            spans=(
                make_span(6, (1, 4, 3), b"a" * 16),
                make_span(9, (1, 4, 3), b"a" * 16),
                SPANS[1],
            )
        ),
        1,
    ),
    "salt": (lambda: keys(salt=b"other"), 0),
    "secret": (lambda: keys(secret=b"t" * 32), 0),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_changes_its_block_and_all_later_ones(name: str) -> None:
    changed, num_before = CHANGES[name]
    assert num_common(keys(), changed()) == num_before


def test_an_image_that_is_swapped_for_another_of_its_size_changes_the_keys() -> None:
    swapped = tuple(
        make_span(span.start, (1, 4, 6), identity)
        for span, identity in zip(SPANS, (b"b" * 16, b"a" * 16), strict=True)
    )
    straight = tuple(make_span(span.start, (1, 4, 6), span.identity) for span in SPANS)
    assert num_common(keys(spans=straight), keys(spans=swapped)) == 1


def test_the_second_half_of_an_image_is_not_the_first_half_of_another() -> None:
    whole = msgspec.structs.replace(make_span(4, (1, 4, 8), b"a" * 16), num_tokens=8)
    halves = [msgspec.structs.replace(whole, start=start, num_tokens=4) for start in (4, 8)]
    assert num_common(keys(spans=(whole,)), keys(spans=tuple(halves))) == 2
