"""Digests tell any two inputs of a tower apart, and the way over tiles is the hash it claims."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from tests.plans import make_plan
from workers.families.plan import ImagePlan
from workers.vision.digest import (
    DIGEST_BYTES,
    LANE_SHIFT,
    NUM_LANES,
    TILE_WORDS,
    Digester,
    embedding_frame,
    patch_frame,
    pixel_frame,
    tile_key,
    tile_sums,
)

KEY = bytes(range(32))
TILE_BYTES = 4 * TILE_WORDS
PLAN = make_plan((56, 84), grid=(1, 4, 6), num_tokens=6)

both_ways = pytest.mark.parametrize("in_tiles", [False, True])


def noise(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def digest(features: Tensor, in_tiles: bool, frame: bytes = b"", key: bytes = KEY) -> bytes:
    return Digester(key).digest(features, frame, in_tiles=in_tiles)


def slow_sums(data: bytes, key: list[int]) -> list[list[int]]:
    """NH of every tile and lane in plain integers, as the paper writes it."""
    data += bytes(-len(data) % TILE_BYTES)
    words = [int.from_bytes(data[start : start + 4], "little") for start in range(0, len(data), 4)]
    return [
        [
            sum(
                ((words[tile + i] + key[LANE_SHIFT * lane + i]) % 2**32)
                * ((words[tile + i + 1] + key[LANE_SHIFT * lane + i + 1]) % 2**32)
                for i in range(0, TILE_WORDS, 2)
            )
            % 2**64
            for lane in range(NUM_LANES)
        ]
        for tile in range(0, len(words), TILE_WORDS)
    ]


@pytest.mark.parametrize(
    "features",
    [
        noise(2 * TILE_BYTES),
        noise(TILE_BYTES + 1),
        noise(3),
        torch.full((TILE_BYTES,), 255, dtype=torch.uint8),
        torch.zeros(1, dtype=torch.uint8),
        torch.randn(31, 37),
        torch.randn(5, 7, 11).to(torch.bfloat16),
        noise(40, 50, 3).permute(2, 0, 1),
        noise(5001)[1:],
    ],
    ids=["tiles", "one-over", "three", "ones", "zero", "floats", "halves", "turned", "shifted"],
)
def test_tile_sums_are_nh_in_plain_integers(features: Tensor) -> None:
    key = tile_key(KEY)
    data = bytes(features.contiguous().view(-1).view(torch.uint8).tolist())

    sums = tile_sums(features, torch.from_numpy(key))

    unsigned = [[value % 2**64 for value in lanes] for lanes in sums.tolist()]
    assert unsigned == slow_sums(data, [int(word) % 2**32 for word in key])


@both_ways
def test_a_digest_depends_on_values_alone(in_tiles: bool) -> None:
    features = noise(300, 7)

    assert len(digest(features, in_tiles)) == DIGEST_BYTES
    assert digest(features, in_tiles) == digest(features.clone(), in_tiles)
    assert digest(features, in_tiles) == digest(noise(900, 7)[:300], in_tiles)
    assert digest(features.T.contiguous().T, in_tiles) == digest(features, in_tiles)
    assert digest(noise(301, 7)[1:], in_tiles) == digest(noise(301, 7)[1:].clone(), in_tiles)


@both_ways
def test_every_single_bit_counts(in_tiles: bool) -> None:
    """Bits at the ends, around the borders of words, tiles and lanes, and anywhere."""
    features = noise(2 * TILE_BYTES + 77)
    places = {0, 1, 3, 4, 7, 8, TILE_BYTES - 1, TILE_BYTES, 2 * TILE_BYTES, len(features) - 1}
    places |= set(random.Random(5).sample(range(len(features)), 25))
    seen = {digest(features, in_tiles)}
    for place in places:
        for bit in range(8):
            features[place] ^= 1 << bit
            seen.add(digest(features, in_tiles))
            features[place] ^= 1 << bit

    assert len(seen) == 1 + 8 * len(places)


@both_ways
def test_order_counts(in_tiles: bool) -> None:
    tiles = noise(4, TILE_BYTES)
    words = tiles.view(torch.int32)
    swapped_words = words.view(-1, 2).flip(1).reshape(-1).view(torch.uint8).view(tiles.shape)
    swapped_pairs = words.view(-1, 2, 2).flip(1).reshape(-1).view(torch.uint8).view(tiles.shape)
    others = [tiles[[1, 0, 2, 3]], tiles.flip(0), tiles[[0, 1, 3, 2]], swapped_words, swapped_pairs]

    assert len({digest(each, in_tiles) for each in [tiles, *others]}) == 6


@both_ways
def test_zeros_at_the_end_count(in_tiles: bool) -> None:
    features = [torch.zeros(length, dtype=torch.uint8) for length in (1, 2, 4, 8, 4096, 4097, 8192)]

    assert len({digest(each, in_tiles) for each in features}) == len(features)


@both_ways
def test_the_same_bytes_in_another_form_are_another_input(in_tiles: bool) -> None:
    data = noise(64, 48)
    forms = [
        data,
        data.view(48, 64),
        data.view(-1),
        data.view(1, 64, 48),
        data.view(torch.int8),
        data.view(torch.float16),
        data.view(torch.bfloat16),
        data.view(torch.float32),
    ]

    assert len({digest(each, in_tiles) for each in forms}) == len(forms)


def change(**fields: Any) -> Callable[[ImagePlan], ImagePlan]:
    return lambda plan: msgspec.structs.replace(plan, **fields)


TABLE_CHANGES = [
    change(mean=(0.5, 0.5, 0.5000001)),
    change(std=(0.5, 0.5000001, 0.5)),
    change(mean=(0.5, 0.4, 0.5), std=(0.4, 0.5, 0.5)),
    change(rescale=1 / 256),
    change(temporal_patch_size=1),
]
PLACE_CHANGES = [
    change(grid=(1, 6, 4)),
    change(grid=(2, 2, 6)),
    change(patch_order="raster"),
    change(merge_size=1),
    change(num_tokens=7),
]


@both_ways
def test_pixels_of_another_plan_are_another_input(in_tiles: bool) -> None:
    raw = noise(24, 3, 196)
    plans = [PLAN, *(make(PLAN) for make in TABLE_CHANGES + PLACE_CHANGES)]
    frames = [pixel_frame(plan, torch.float32) for plan in plans]
    frames.append(pixel_frame(PLAN, torch.bfloat16))

    assert len({digest(raw, in_tiles, frame) for frame in frames}) == len(plans) + 1


def test_what_the_tower_does_not_see_does_not_count() -> None:
    """The same pixels may have been smaller, or lain on something: they are the same image."""
    other = msgspec.structs.replace(
        PLAN, source_size=(9, 9), resized_size=(50, 80), background=None, backend="cuda"
    )

    assert pixel_frame(other, torch.float32) == pixel_frame(PLAN, torch.float32)


def test_patches_in_other_places_are_another_input() -> None:
    plans = [PLAN, *(make(PLAN) for make in PLACE_CHANGES)]

    assert len({patch_frame(plan, torch.float32) for plan in plans}) == len(plans)


def test_kinds_of_features_never_meet() -> None:
    features = torch.randn(24, 3, 4)
    frames = [
        pixel_frame(PLAN, torch.float32),
        patch_frame(PLAN, torch.float32),
        embedding_frame(PLAN),
        embedding_frame(msgspec.structs.replace(PLAN, grid=(1, 6, 4))),
    ]

    found = {digest(features, tiles, frame) for frame in frames for tiles in (False, True)}

    assert len(found) == 2 * len(frames)


@both_ways
def test_another_key_gives_other_digests(in_tiles: bool) -> None:
    features = noise(1000)
    keys = [KEY, bytes(32), KEY[:-1] + b"\x20", b"\x01" + KEY[1:]]

    assert len({digest(features, in_tiles, key=key) for key in keys}) == len(keys)


def test_tiles_that_collide_under_one_key_do_not_under_another() -> None:
    """With the key in hand a collision is easy; without, it holds for that key alone."""
    key = torch.from_numpy(tile_key(KEY))
    tile = torch.zeros(TILE_WORDS, dtype=torch.int32)
    tile[0] = -key[0]  # the first word of a pair adds up to 0: in this lane its partner is free
    other = tile.clone()
    other[1] = 12345

    first, second = tile_sums(tile, key)[0].tolist(), tile_sums(other, key)[0].tolist()

    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, False, False]
    strange = torch.from_numpy(tile_key(bytes(32)))
    assert tile_sums(tile, strange)[0, 0] != tile_sums(other, strange)[0, 0]
