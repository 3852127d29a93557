"""Files of tensors: honest ones arrive bit by bit, all others are refused by name."""

import asyncio
import random
import struct
from typing import Any

import pytest
import torch
from torch import Tensor

from gateway.errors import ImageRejected
from gateway.images.fetch import SourceImage
from gateway.images.identity import source_digest
from gateway.images.tensors import MAX_HEADER_BYTES, TensorHeader, check_tensors, read_tensors
from tests.plans import make_plan
from tests.tensor_files import DTYPES, laid_out, raw_file, tensor_file
from workers.messages import Embeddings, Patches, Region

PARAM = "messages[0].content[2].image_tensors.data"
GRID = ("I64", [3], struct.pack("<3q", 1, 2, 4))
PLAN = make_plan((28, 56), grid=(1, 2, 4), num_tokens=2)
VALUES = 3 * 2 * 14**2


def read(data: bytes) -> tuple[SourceImage, TensorHeader]:
    return read_tensors(SourceImage(5, PARAM, data))


def read_and_check(data: bytes) -> None:
    image, header = read(data)
    check_tensors(image, header, PLAN)


def refused(data: bytes) -> ImageRejected:
    with pytest.raises(ImageRejected) as caught:
        read_and_check(data)
    error = caught.value
    assert (error.index, error.stage, error.param) == (5, "header", PARAM)
    assert (error.status, error.code, error.retryable) == (400, "invalid_tensors", False)
    assert len(error.message) < 400
    return error


def bits(tensor: Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).numpy().data)


def test_patches_arrive_bit_by_bit() -> None:
    patches = torch.randn(8, VALUES)
    image, header = read(tensor_file((1, 2, 4), patches=patches))
    check_tensors(image, header, PLAN)
    assert image == SourceImage(5, PARAM, bits(patches))
    assert header == TensorHeader("patches", "float32", (8, VALUES), (1, 2, 4))
    region = Region(0, 64, len(image.data))
    assert header.as_payload(region) == Patches(region)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(2, 48), (1, 2, 48), (4, 2, 48)])
def test_embeddings_arrive_bit_by_bit_in_their_dtype(
    dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    embeddings = torch.randn(shape).to(dtype)
    image, header = read(tensor_file((1, 2, 4), embeddings=embeddings))
    check_tensors(image, header, PLAN)
    assert image.data == bits(embeddings)
    name = str(dtype).removeprefix("torch.")
    levels = (1, *shape) if len(shape) == 2 else shape
    assert header == TensorHeader("embeddings", name, levels, (1, 2, 4))
    region = Region(0, 64, len(image.data))
    assert header.as_payload(region) == Embeddings(region, name, (levels[0], 2, 48))


def test_remarks_of_a_library_in_the_header_are_taken() -> None:
    span = {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}
    other = {"dtype": "BF16", "shape": [2, 3], "data_offsets": [24, 36]}
    header = {"__metadata__": {"format": "pt"}, "image_grid_thw": span, "embeddings": other}
    image, read_header = read(raw_file(header, GRID[2] + b"ab" * 6))
    assert (image.data, read_header.shape) == (b"ab" * 6, (1, 2, 3))


def sized(dtype: str, *shape: int) -> tuple[str, list[int], bytes]:
    num_bytes = DTYPES[dtype]
    for side in shape:
        num_bytes *= side
    return dtype, list(shape), bytes(num_bytes)


PATCHES = sized("F32", 8, VALUES)
WRONG: dict[str, bytes] = {
    "nothing": b"",
    "seven bytes": bytes(7),
    "no header": bytes(8),
    "text": b"not a safetensors file at all",
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94.",
    "a zip": b"PK\x03\x04" + bytes(60),
    "endless header": b"\xff" * 64,
    "header beyond the file": (1000).to_bytes(8, "little") + b"{}",
    "deep header": raw_file(b"[" * 4000, b""),
    "header of a list": raw_file([1], b""),
    "no tensors": raw_file({}, b""),
    "bytes behind": laid_out(image_grid_thw=GRID, patches=PATCHES) + b"x",
    "bytes missing": laid_out(image_grid_thw=GRID, patches=PATCHES)[:-1],
    "no grid": laid_out(patches=PATCHES),
    "only a grid": laid_out(image_grid_thw=GRID),
    "both kinds": laid_out(image_grid_thw=GRID, patches=PATCHES, embeddings=sized("F32", 2, 8)),
    "one too many": laid_out(image_grid_thw=GRID, patches=PATCHES, mask=sized("U8", 8)),
    "another name": laid_out(image_grid_thw=GRID, pixel_values=PATCHES),
    "other letters": laid_out(image_grid_thw=GRID, Patches=PATCHES),
    "grid of floats": laid_out(image_grid_thw=("F32", [3], bytes(12)), patches=PATCHES),
    "grid of two": laid_out(image_grid_thw=("I64", [2], bytes(16)), patches=PATCHES),
    "grid of two axes": laid_out(image_grid_thw=("I64", [1, 3], GRID[2]), patches=PATCHES),
    "half precision patches": laid_out(image_grid_thw=GRID, patches=sized("BF16", 8, VALUES)),
    "bytes for patches": laid_out(image_grid_thw=GRID, patches=sized("U8", 8, VALUES)),
    "doubles": laid_out(image_grid_thw=GRID, embeddings=sized("F64", 2, 48)),
    "whole numbers": laid_out(image_grid_thw=GRID, embeddings=sized("I64", 2, 48)),
    "patches too few": laid_out(image_grid_thw=GRID, patches=sized("F32", 7, VALUES)),
    "patches too narrow": laid_out(image_grid_thw=GRID, patches=sized("F32", 8, VALUES - 1)),
    "patches turned": laid_out(image_grid_thw=GRID, patches=sized("F32", VALUES, 8)),
    "patches in a line": laid_out(image_grid_thw=GRID, patches=sized("F32", 8 * VALUES)),
    "patches in a box": laid_out(image_grid_thw=GRID, patches=sized("F32", 8, 3, VALUES // 3)),
    "no patches": laid_out(image_grid_thw=GRID, patches=sized("F32", 0, VALUES)),
    "tokens too many": laid_out(image_grid_thw=GRID, embeddings=sized("F32", 3, 48)),
    "tokens turned": laid_out(image_grid_thw=GRID, embeddings=sized("F32", 48, 2)),
    "one number": laid_out(image_grid_thw=GRID, embeddings=sized("F32")),
    "four axes": laid_out(image_grid_thw=GRID, embeddings=sized("F32", 1, 1, 2, 48)),
    "no width": laid_out(image_grid_thw=GRID, embeddings=sized("F32", 2, 0)),
    "many axes": laid_out(image_grid_thw=GRID, embeddings=sized("F32", *[1] * 900)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_whatever_is_no_such_file_is_refused(name: str) -> None:
    refused(WRONG[name])


def span(start: int, end: int, *shape: int) -> dict[str, Any]:
    return {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}


@pytest.mark.parametrize(
    "patches",
    [
        span(0, 96, 4, 6),  # over the grid
        span(12, 108, 4, 6),  # half over it
        span(32, 128, 4, 6),  # behind a hole
        span(24, 24, 4, 6),
        span(120, 24, 4, 6),
        span(-8, 88, 4, 6),
        span(24, 2**64 + 24, 4, 6),
        span(24, 120, 2**62, 2**62),
        span(24, 120, -4, -6),
        span(24, 120, 5, 6),
        span(24, 120, 4.0, 6),  # type: ignore[arg-type]  # as hostile JSON has it
    ],
)
def test_tensors_that_overlap_or_leave_gaps_or_lie_about_sizes_are_refused(patches: Any) -> None:
    grid = {"dtype": "I64", "shape": [3], "data_offsets": [0, 24]}
    refused(raw_file({"image_grid_thw": grid, "patches": patches}, GRID[2] + bytes(96)))


def test_a_name_given_twice_is_refused_or_the_same() -> None:
    first = b'"image_grid_thw":{"dtype":"I64","shape":[3],"data_offsets":[0,24]}'
    again = b'"image_grid_thw":{"dtype":"I64","shape":[3],"data_offsets":[24,48]}'
    refused(raw_file(b"{" + first + b"," + again + b"}", GRID[2] * 2))


def test_a_long_header_is_refused_before_it_is_parsed() -> None:
    header = {f"tensor {number}": span(0, 0, 0) for number in range(100)}
    error = refused(raw_file(header, b""))
    assert str(MAX_HEADER_BYTES) in error.message


def test_a_wrong_shape_is_answered_with_the_right_one() -> None:
    message = refused(WRONG["patches too few"]).message
    assert f"[7, {VALUES}]" in message
    assert f"[8, {VALUES}]" in message
    assert "[1, 2, 4]" in message
    assert "[1, 3, 48]" in refused(WRONG["tokens too many"]).message
    assert "[1, 2, 48]" in refused(WRONG["tokens too many"]).message


def mutated(data: bytes, rng: random.Random) -> bytes:
    """A few bytes of the length or of the header changed, taken out or put in."""
    result = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(min(len(result), 200))
        step = rng.random()
        if step < 0.5:
            result[place] = rng.choice(b'0123456789[]{}",:-.eFIB\x00\xff')
        elif step < 0.75:
            del result[place : place + rng.randint(1, 9)]
        else:
            result[place:place] = rng.choices(b'0123456789[]{}",:-', k=rng.randint(1, 4))
    return bytes(result)


def test_damage_of_any_kind_is_refused_or_gives_a_consistent_tensor() -> None:
    rng = random.Random(20)
    honest = [
        laid_out(image_grid_thw=GRID, patches=sized("F32", 8, 6)),
        laid_out(image_grid_thw=GRID, embeddings=sized("BF16", 2, 12)),
    ]
    taken = 0
    for _ in range(4000):
        data = mutated(rng.choice(honest), rng)
        try:
            image, header = read(data)
        except ImageRejected:
            continue
        taken += 1
        size = {"float32": 4, "float16": 2, "bfloat16": 2}[header.dtype]
        for side in header.shape:
            size *= side
        assert size == len(image.data) > 0
    assert 0 < taken < 1000


def digest(data: bytes, plan: Any = PLAN, tenant: bytes = b"", **kind: bytes) -> bytes:
    return asyncio.run(source_digest(data, plan, tenant, bytes(32), **kind))


def test_equal_bytes_of_another_kind_dtype_shape_or_tenant_are_another_image() -> None:
    data = bytes(range(96))
    headers = [
        TensorHeader("patches", "float32", (4, 6), (1, 2, 2)),
        TensorHeader("patches", "float32", (6, 4), (1, 2, 2)),
        TensorHeader("embeddings", "float32", (1, 4, 6), (1, 2, 2)),
        TensorHeader("embeddings", "float32", (4, 1, 6), (1, 2, 2)),
        TensorHeader("embeddings", "bfloat16", (1, 4, 12), (1, 2, 2)),
        TensorHeader("embeddings", "float16", (1, 4, 12), (1, 2, 2)),
    ]
    digests = [digest(data, kind=header.frame) for header in headers]
    digests += [digest(data, kind=headers[0].frame, tenant=b"other"), digest(data)]
    digests.append(digest(data, make_plan((56, 28), grid=(1, 4, 2)), kind=headers[0].frame))
    digests.append(digest(data[::-1], kind=headers[0].frame))
    assert len(set(digests)) == len(digests) == 10
    assert digest(bytes(data), kind=headers[0].frame) == digests[0]


def test_the_same_tensor_in_another_file_is_the_same_image() -> None:
    patches = sized("F32", 8, VALUES)
    one = read(laid_out(image_grid_thw=GRID, patches=patches))
    other = read(laid_out(patches=patches, image_grid_thw=GRID))
    assert one == other
