"""A file of tensors that came in place of an image in, what it holds out; no torch.

The file is safetensors, which holds numbers and nothing that runs. It is trusted in nothing:
whatever it claims is checked here, but for what the owner alone knows, and for the numbers.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, Literal

import msgspec
from safetensors import SafetensorError, deserialize

from gateway.errors import ImageRejected
from gateway.images.fetch import SourceImage
from workers.families.plan import ImagePlan
from workers.messages import Embeddings, Patches, Region

Refusal = Callable[[str], ImageRejected]

INVALID_TENSORS = "invalid_tensors"
# Of an honest file it takes some two hundred bytes; the library would parse a hundred megabytes.
MAX_HEADER_BYTES = 4096
_GRID = "image_grid_thw"
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # the file's name -> torch's
_TAKEN: dict[str, tuple[str, ...]] = {"patches": ("F32",), "embeddings": tuple(_DTYPES)}


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What came in place of an image's file, as the file of tensors describes it."""

    kind: Literal["patches", "embeddings"]
    dtype: str  # torch's name
    shape: tuple[int, ...]  # [patches, values], or [1 + deepstack levels, tokens, hidden]
    grid: tuple[int, int, int]  # frames, rows, columns of patches, before merging

    @property
    def frame(self) -> bytes:
        """What besides its bytes and its plan tells the tensor from any other image."""
        return msgspec.msgpack.encode(("tensors", self.kind, self.dtype, self.shape))

    def as_payload(self, region: Region) -> Patches | Embeddings:
        """What tells the owner how to read the bytes that lie in `region`."""
        if self.kind == "patches":
            return Patches(region)
        levels, num_tokens, hidden = self.shape
        return Embeddings(region, self.dtype, (levels, num_tokens, hidden))


def read_tensors(file: SourceImage) -> tuple[SourceImage, TensorHeader]:
    """Read a safetensors file with `image_grid_thw` and one of `patches` and `embeddings`.

    Blocking: the library copies, at some gigabytes per second.

    Returns:
        the bytes of patches or embeddings alone, row-major, and what they are.

    Raises:
        ImageRejected: stage header, code invalid_tensors; the file is damaged or holds something
            else, or a tensor has a wrong dtype or number of axes.
    """
    refuse = _refusal(file)
    tensors = _deserialize(file.data, refuse)
    names = sorted(tensors)
    kinds = [name for name in names if name in _TAKEN]
    if len(kinds) != 1 or names != sorted((_GRID, *kinds)):
        raise refuse(f"the file should hold {_GRID} and either patches or embeddings, no more")
    kind: Any = kinds[0]
    grid, tensor = tensors[_GRID], tensors[kind]
    if (grid["dtype"], grid["shape"]) != ("I64", [3]):
        raise refuse(f"{_GRID} is {_describe(grid)}; it should be I64 [3]")
    header = TensorHeader(
        kind=kind,
        dtype=_dtype(kind, tensor, refuse),
        shape=_shape(kind, tensor, refuse),
        grid=struct.unpack("<3q", grid["data"]),
    )
    return SourceImage(file.index, file.param, bytes(tensor["data"])), header


def check_tensors(image: SourceImage, header: TensorHeader, plan: ImagePlan) -> None:
    """Hold a tensor's shape to the plan that was made of its grid.

    Raises:
        ImageRejected: stage header, code invalid_tensors; the shape does not follow from the grid.
    """
    values = 3 * plan.temporal_patch_size * plan.patch_size**2
    if header.kind == "patches" and header.shape != (plan.num_patches, values):
        planned = [plan.num_patches, values]
    elif header.kind == "embeddings" and header.shape[1] != plan.num_tokens:
        planned = [header.shape[0], plan.num_tokens, header.shape[2]]
    else:
        return
    raise _refusal(image)(
        f"{header.kind} are {list(header.shape)}; with the grid {list(plan.grid)} "
        f"they should be {planned}"
    )


def _refusal(image: SourceImage) -> Refusal:
    return partial(
        ImageRejected, index=image.index, stage="header", param=image.param, code=INVALID_TENSORS
    )


def _deserialize(data: bytes, refuse: Refusal) -> dict[str, dict[str, Any]]:
    """Tensors by name; the library has held sizes and offsets to each other and to the file."""
    num_header_bytes = int.from_bytes(data[:8], "little")
    if len(data) < 8 or num_header_bytes > len(data) - 8:
        raise refuse("the bytes are no safetensors file")
    if num_header_bytes > MAX_HEADER_BYTES:
        raise refuse(f"its header has {num_header_bytes} bytes; the limit is {MAX_HEADER_BYTES}")
    try:
        return dict(deserialize(data))  # type: ignore[no-untyped-call]  # the library types it not
    except SafetensorError as error:
        raise refuse("the bytes are no safetensors file, or a damaged one") from error


def _dtype(kind: str, tensor: dict[str, Any], refuse: Refusal) -> str:
    if tensor["dtype"] not in _TAKEN[kind]:
        raise refuse(f"{kind} are {tensor['dtype']}; they should be {' or '.join(_TAKEN[kind])}")
    return _DTYPES[tensor["dtype"]]


def _shape(kind: str, tensor: dict[str, Any], refuse: Refusal) -> tuple[int, ...]:
    """As the owner takes it: embeddings of one level get an axis for it."""
    shape = tuple(tensor["shape"])
    if kind == "embeddings" and len(shape) == 2:
        shape = (1, *shape)
    if len(shape) != (2 if kind == "patches" else 3) or prod(shape) == 0:
        raise refuse(f"{kind} are {_describe(tensor)}; this is no image")
    return shape


def _describe(tensor: dict[str, Any]) -> str:
    return f"{tensor['dtype']} {tensor['shape'][:4]}"
