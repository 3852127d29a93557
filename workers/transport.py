"""The setting and the fleet in, how embeddings travel out; decided once, at start. Pure."""

import sys
from collections.abc import Callable, Sequence
from typing import Literal

from config.workers import WorkerSpec

Transport = Literal["cpu", "cuda_ipc"]


class TransportError(Exception):
    """The transport that the operator asks for cannot be had; the message says why."""


def choose_transport(
    wanted: Literal["auto", "cpu", "cuda_ipc"],
    specs: Sequence[WorkerSpec],
    can_reach: Callable[[int, int], bool],
    platform: str = sys.platform,
) -> Transport:
    """What `wanted` means for these workers.

    Args:
        wanted: the setting; auto is cuda_ipc wherever that can be had.
        specs: all workers, each of which is an owner or an engine.
        can_reach: whether the first CUDA device reads the memory of the second.
        platform: as `sys.platform`.

    Raises:
        TransportError: it is cuda_ipc, which cannot be had.
    """
    if wanted == "cpu":
        return "cpu"
    obstacle = _obstacle(specs, can_reach, platform)
    if not obstacle:
        return "cuda_ipc"
    if wanted == "cuda_ipc":
        raise TransportError(f"FOVEA_FEATURE_TRANSPORT=cuda_ipc cannot be had: {obstacle}")
    return "cpu"


def is_shared(index: int, specs: Sequence[WorkerSpec]) -> bool:
    """Whether the embeddings of the worker at `index` are read by another one."""
    others = (spec for place, spec in enumerate(specs) if place != index)
    return "vision" in specs[index].roles and any("language" in each.roles for each in others)


def _obstacle(
    specs: Sequence[WorkerSpec], can_reach: Callable[[int, int], bool], platform: str
) -> str:
    """Why embeddings cannot stay on the owners' devices; empty if they can."""
    if platform != "linux":
        return f"CUDA shares memory between processes on Linux, and this is {platform}"
    for spec in specs:
        if not spec.device.startswith("cuda"):
            return f"{spec.name} is on the device {spec.device}"
    for owner in (spec for spec in specs if "vision" in spec.roles):
        for engine in (spec for spec in specs if "language" in spec.roles):
            if not can_reach(_number(engine.device), _number(owner.device)):
                return f"{engine.device} cannot read the memory of {owner.device}"
    return ""


def _number(device: str) -> int:
    return int(device.partition(":")[2] or 0)
