"""Encode jobs in, what the tower takes for each of them out, whatever payload carried it.

Every image is materialised by itself and by its own plan: nothing is looked up by its position in
a batch or shared with a neighbour, and what is wrong with one job fails that job alone.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor

from workers import memory
from workers.arena import Arenas
from workers.fail_kind import FailKind
from workers.families.plan import ImagePlan
from workers.messages import Embeddings, EncodeJob, JpegBytes, Patches, Pixels
from workers.vision.batch import choose_batch
from workers.vision.digest import Digester, embedding_frame, patch_frame, pixel_frame
from workers.vision.encoder import Encoder
from workers.vision.jpeg import decode_jpegs, upright
from workers.vision.payloads import JobFault, read_embeddings, read_file, read_patches, read_pixels
from workers.vision.preprocess import Preprocessor, cut, resized

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")
MAX_DECODED_BYTES = 512 << 20  # of pictures from files that lie decoded at once; one may exceed it
Stage = Literal["source", "resized"]  # what was done to pixels before they came


@dataclass(frozen=True, slots=True)
class Seconds:
    """Time spent on one image before the tower."""

    decode: float
    preprocess: float
    digest: float

    @property
    def total(self) -> float:
        return self.decode + self.preprocess + self.digest


@dataclass(frozen=True, slots=True)
class Material:
    """One image as the tower takes it, or what the tower would have given."""

    features: Tensor  # float32 [patches, values] on the tower's device, or embeddings as they came
    is_encoded: bool
    digest: bytes
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class _Picture:
    """What came of a file."""

    pixels: Tensor | None  # uint8 RGB [height, width, 3], as stored; None: it cannot be read
    decode_seconds: float

    def upright(self, orientation: int, plan: ImagePlan) -> Tensor:
        if self.pixels is None:
            raise JobFault("undecoded", "the file cannot be decoded here")
        pixels = upright(self.pixels, orientation)
        size = tuple(pixels.shape[:2])
        if size != plan.source_size:
            raise JobFault("undecoded", f"the file has {size} pixels, not {plan.source_size}")
        return pixels


class Materialiser:
    """Turns payloads into materials for one tower. Used by one thread at a time."""

    def __init__(self, vision: Encoder, arenas: Arenas, digest_key: bytes) -> None:
        """`digest_key`: 32 secret bytes, the same in all workers of a gateway."""
        self._vision = vision
        self._arenas = arenas
        self._digester = Digester(digest_key)
        self._preprocessors = {device: Preprocessor(device) for device in {CPU, vision.device}}

    def materialise(self, jobs: Sequence[EncodeJob]) -> list[Material | JobFault]:
        """What each job brings, in order; a fault for one that cannot be used.

        Raises:
            AcceleratorError: the device is lost, and all jobs with it.
        """
        materials: list[Material | JobFault] = []
        while len(materials) < len(jobs):
            rest = jobs[len(materials) :]
            size = choose_batch([_decoded_bytes(job) for job in rest], MAX_DECODED_BYTES)
            pictures = self._decode(rest[:size])
            materials += [self._guarded(job, pictures) for job in rest[:size]]
        return materials

    def _decode(self, jobs: Sequence[EncodeJob]) -> dict[str, _Picture]:
        """By job, what came of the files; those of one device are decoded together."""
        pictures: dict[str, _Picture] = {}
        for device in self._preprocessors:
            files = {
                job.job_id: read_file(self._arenas, job.payload)
                for job in jobs
                if isinstance(job.payload, JpegBytes) and self._device(job.plan) == device
            }
            watch = _Stopwatch(device)
            decoded = decode_jpegs(list(files.values()), device)
            seconds = watch.lap() / max(1, len(files))
            for job_id, pixels in zip(files, decoded, strict=True):
                pictures[job_id] = _Picture(pixels, seconds)
        return pictures

    def _guarded(self, job: EncodeJob, pictures: Mapping[str, _Picture]) -> Material | JobFault:
        try:
            return self._material(job, pictures)
        except torch.AcceleratorError:
            raise
        except JobFault as fault:
            return fault
        except Exception as fault:
            logger.exception("the image of job %s cannot be prepared", job.job_id)
            kind: FailKind = "out_of_memory" if memory.is_short(fault) else "internal"
            return JobFault(kind, "the vision worker failed on this image")

    def _material(self, job: EncodeJob, pictures: Mapping[str, _Picture]) -> Material:
        match job.payload:
            case JpegBytes(orientation=orientation):
                picture = pictures[job.job_id]
                pixels = picture.upright(orientation, job.plan)
                return self._from_pixels(pixels, "source", job.plan, picture.decode_seconds)
            case Pixels(stage=stage):
                pixels = read_pixels(self._arenas, job.payload, job.plan)
                return self._from_pixels(pixels, stage, job.plan, 0.0)
            case Patches():
                return self._from_patches(job.payload, job.plan)
            case Embeddings():
                return self._from_embeddings(job.payload, job.plan)

    def _from_pixels(
        self, pixels: Tensor, stage: Stage, plan: ImagePlan, decode_seconds: float
    ) -> Material:
        device = self._device(plan)
        watch = _Stopwatch(device)
        moved = pixels.to(device)
        levels = cut(resized(moved, plan) if stage == "source" else moved, plan)
        cut_seconds = watch.lap()
        digest = self._digest(levels, pixel_frame(plan, self._vision.dtype))
        digest_seconds = watch.lap()
        patches = self._preprocessors[device].normalised(levels, plan).to(self._vision.device)
        seconds = Seconds(decode_seconds, cut_seconds + watch.lap(), digest_seconds)
        return Material(patches, is_encoded=False, digest=digest, seconds=seconds)

    def _from_patches(self, payload: Patches, plan: ImagePlan) -> Material:
        device = self._device(plan)
        watch = _Stopwatch(device)
        patches = read_patches(self._arenas, payload, plan).to(device)
        _check_finite(patches, "patches")
        preprocess_seconds = watch.lap()
        digest = self._digest(patches, patch_frame(plan, self._vision.dtype))
        seconds = Seconds(0.0, preprocess_seconds, watch.lap())
        moved = patches.to(self._vision.device)
        return Material(moved, is_encoded=False, digest=digest, seconds=seconds)

    def _from_embeddings(self, payload: Embeddings, plan: ImagePlan) -> Material:
        """They never visit the device: they belong in the arena, from where they come."""
        watch = _Stopwatch(CPU)
        embeddings = read_embeddings(self._arenas, payload, plan, self._vision)
        _check_finite(embeddings, "embeddings")
        preprocess_seconds = watch.lap()
        digest = self._digest(embeddings, embedding_frame(plan))
        seconds = Seconds(0.0, preprocess_seconds, watch.lap())
        return Material(embeddings, is_encoded=True, digest=digest, seconds=seconds)

    def _digest(self, features: Tensor, frame: bytes) -> bytes:
        return self._digester.digest(features, frame, in_tiles=features.device.type != "cpu")

    def _device(self, plan: ImagePlan) -> torch.device:
        """Where the image is decoded and preprocessed; for the tower it moves, if it must."""
        return CPU if plan.backend == "cpu" else self._vision.device


class _Stopwatch:
    """Tells how long work took that was given to a device."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._lap_at = time.monotonic()

    def lap(self) -> float:
        """Seconds since the last call, once the device has done what it was given."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        began_at, self._lap_at = self._lap_at, time.monotonic()
        return self._lap_at - began_at


def _decoded_bytes(job: EncodeJob) -> int:
    return 3 * prod(job.plan.source_size) if isinstance(job.payload, JpegBytes) else 0


def _check_finite(features: Tensor, what: str) -> None:
    if not bool(torch.isfinite(features).all()):
        raise JobFault("bad_input", f"the image's {what} hold values that are not finite")
