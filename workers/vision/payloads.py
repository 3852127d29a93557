"""A job's payload in, the tensor that lies in the arena for it out, checked against its plan.

Tensors are views of the arena, or of the owner's pool: nothing is copied here. Patches and
embeddings may come from callers, so what is wrong with them is a caller's mistake; pixels come
from the gateway alone.
"""

from math import prod

import torch
from torch import Tensor

from workers.arena import Arenas
from workers.fail_kind import FailKind
from workers.families.plan import ImagePlan
from workers.features import OwnPool
from workers.messages import Embeddings, EncodeJob, JpegBytes, Patches, Pixels, Region
from workers.vision.encoder import Encoder


class JobFault(Exception):
    """One job cannot be served; the message may be shown to a caller."""

    def __init__(self, kind: FailKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailKind = kind


def read_file(arenas: Arenas, payload: JpegBytes) -> Tensor:
    """The file as it came: uint8 [bytes]; none where there is no such region."""
    try:
        return _tensor(arenas, payload.region, torch.uint8, (payload.region.num_bytes,))
    except ValueError:  # a bad region, or an empty one
        return torch.empty(0, dtype=torch.uint8)


def read_pixels(arenas: Arenas, payload: Pixels, plan: ImagePlan) -> Tensor:
    """uint8 [height, width, channels] of the plan's source size or its resized size.

    Raises:
        JobFault: the size, the channels or the number of bytes are not as planned.
    """
    planned = plan.source_size if payload.stage == "source" else plan.resized_size
    size = (payload.height, payload.width)
    if size != planned:
        raise JobFault("internal", f"{payload.stage} pixels are {size}, planned were {planned}")
    if payload.stage == "resized" and payload.channels != 3:
        raise JobFault("internal", "resized pixels have 4 channels; they are RGB")
    shape = (*size, payload.channels)
    if payload.region.num_bytes < prod(shape):
        raise JobFault("internal", f"{payload.stage} pixels have {payload.region.num_bytes} bytes")
    return _tensor(arenas, payload.region, torch.uint8, shape)


def read_patches(arenas: Arenas, payload: Patches, plan: ImagePlan) -> Tensor:
    """float32 [plan.num_patches, 3 * temporal_patch_size * patch_size ** 2].

    Raises:
        JobFault: the number of bytes is not that of the planned patches.
    """
    shape = (plan.num_patches, 3 * plan.temporal_patch_size * plan.patch_size**2)
    _check_size(payload.region, prod(shape) * torch.float32.itemsize, "patches")
    return _tensor(arenas, payload.region, torch.float32, shape)


def read_embeddings(
    arenas: Arenas, payload: Embeddings, plan: ImagePlan, vision: Encoder
) -> Tensor:
    """What the tower would give: [vision.num_levels, plan.num_tokens, hidden], in its dtype.

    Raises:
        JobFault: shape, dtype or number of bytes are not the tower's.
    """
    shape = embeddings_shape(plan, vision)
    if payload.shape != shape:
        raise JobFault(
            "bad_input",
            f"embeddings are {list(payload.shape)}; from this tower they are {list(shape)}",
        )
    dtype = str(vision.dtype).removeprefix("torch.")
    if payload.dtype != dtype:
        raise JobFault(
            "bad_input", f"embeddings are {payload.dtype}; from this tower they are {dtype}"
        )
    _check_size(payload.region, prod(shape) * vision.dtype.itemsize, "embeddings")
    return _tensor(arenas, payload.region, vision.dtype, shape)


def embeddings_shape(plan: ImagePlan, vision: Encoder) -> tuple[int, int, int]:
    """Levels, tokens and values per token of one image's embeddings."""
    return (vision.num_levels, plan.num_tokens, vision.hidden_size)


def target_of(
    arenas: Arenas,
    pool: OwnPool | None,
    job: EncodeJob,
    dtype: torch.dtype,
    shape: tuple[int, ...],
) -> Tensor:
    """Where the job's embeddings belong, to be written: in an arena, or in the owner's own pool.

    Raises:
        JobFault: the region is too small for them, or of a pool that an earlier process had.
    """
    num_bytes = prod(shape) * dtype.itemsize
    if job.target.num_bytes < num_bytes:
        message = f"the target has {job.target.num_bytes} bytes, {num_bytes} are needed"
        raise JobFault("internal", message)
    if not job.target.pool:
        return _tensor(arenas, job.target, dtype, shape)
    if pool is None or pool.number != job.target.pool:
        raise JobFault("gone", "the target went with another process")
    return pool.view(job.target)[:num_bytes].view(dtype).view(shape)


def _check_size(region: Region, num_bytes: int, what: str) -> None:
    if region.num_bytes != num_bytes:
        message = f"the image's {what} have {region.num_bytes} bytes, not {num_bytes}"
        raise JobFault("bad_input", message)


def _tensor(arenas: Arenas, region: Region, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    view = arenas.view(region)
    return torch.frombuffer(view, dtype=dtype, count=prod(shape)).view(shape)
