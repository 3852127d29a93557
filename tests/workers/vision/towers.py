"""A tower and patches that anybody can repeat, and jobs with every payload for them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tests.workers.vision.jobs import Memory
from workers.families.plan import ImagePlan
from workers.messages import Embeddings, EncodeJob, JpegBytes, Patches, Payload, Pixels

Picture = np.ndarray[Any, np.dtype[np.uint8]]


@dataclass
class Averager:
    """Gives each token the mean of its patches' first values. Used by the test's thread."""

    dtype: torch.dtype = torch.float32
    num_levels: int = 2
    hidden_size: int = 6
    merge_size: int = 2
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    passes: list[list[tuple[int, int, int]]] = field(default_factory=list)  # grids of each call

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        self.passes.append(list(grids))
        images = torch.split(patches, [math.prod(grid) for grid in grids])
        return [self._one(image) for image in images]

    def _one(self, patches: Tensor) -> Tensor:
        """[patches, values] -> [num_levels, tokens, hidden_size]."""
        wanted = patches[:, : self.num_levels * self.hidden_size].to(self.dtype)
        means = wanted.view(-1, self.merge_size**2, self.num_levels, self.hidden_size).mean(1)
        return means.permute(1, 0, 2).contiguous()


def random_picture(height: int, width: int, seed: int = 0) -> Picture:
    random = np.random.default_rng((height, width, seed))
    return random.integers(0, 256, (height, width, 3), dtype=np.uint8)


def expected_patches(picture: Picture, plan: ImagePlan) -> Tensor:
    """What the tower takes for a resized picture, one patch after the other, the slow way."""
    padded = np.zeros((*plan.padded_size, 3), dtype=np.uint8)
    padded[: picture.shape[0], : picture.shape[1]] = picture
    rescaled = (padded.astype(np.float64) * plan.rescale).astype(np.float32)
    values = (rescaled - np.array(plan.mean, np.float32)) / np.array(plan.std, np.float32)
    side = plan.patch_size
    patches = []
    for row, column in _places(plan):
        patch = values[row * side : (row + 1) * side, column * side : (column + 1) * side]
        frames = np.stack([patch] * plan.temporal_patch_size)  # [frames, rows, columns, 3]
        patches.append(frames.transpose(3, 0, 1, 2).reshape(-1))
    return torch.from_numpy(np.stack(patches))


def _places(plan: ImagePlan) -> list[tuple[int, int]]:
    _, rows, columns = plan.grid
    step = plan.merge_size if plan.patch_order == "merged" else 1
    return [
        (row + below, column + beside)
        for row in range(0, rows, step)
        for column in range(0, columns, step)
        for below in range(step)
        for beside in range(step)
    ]


def make_job(
    memory: Memory, name: str, plan: ImagePlan, payload: Payload, num_target_bytes: int = 1 << 12
) -> EncodeJob:
    target = memory.allocate(num_target_bytes)
    return EncodeJob(job_id=name, plan=plan, payload=payload, target=target, seconds_left=60.0)


def pixels_payload(memory: Memory, picture: Picture) -> Pixels:
    height, width, _ = picture.shape
    return Pixels(memory.store(picture.tobytes()), height, width, 3, "resized")


def source_payload(memory: Memory, picture: Picture) -> Pixels:
    height, width, channels = picture.shape
    assert channels in (3, 4)
    region = memory.store(np.ascontiguousarray(picture).tobytes())
    return Pixels(region, height, width, 3 if channels == 3 else 4, "source")


def jpeg_payload(memory: Memory, file: bytes, orientation: int = 1) -> JpegBytes:
    return JpegBytes(memory.store(file), orientation)


def patches_payload(memory: Memory, patches: Tensor) -> Patches:
    return Patches(memory.store(patches.numpy().tobytes()))


def embeddings_payload(memory: Memory, embeddings: Tensor) -> Embeddings:
    levels, tokens, hidden = embeddings.shape
    region = memory.store(embeddings.contiguous().view(torch.uint8).numpy().tobytes())
    dtype = str(embeddings.dtype).removeprefix("torch.")
    return Embeddings(region, dtype, (levels, tokens, hidden))


def result_of(memory: Memory, job: EncodeJob, shape: tuple[int, ...], dtype: str) -> Tensor:
    """What lies in the job's target."""
    values = torch.frombuffer(
        memory.gateway.view(job.target), dtype=getattr(torch, dtype), count=int(np.prod(shape))
    )
    return values.view(shape).clone()
