"""The vision owner: encode jobs in, embeddings in the arena and one last event per job out."""

import logging
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Protocol

import torch
from torch import Tensor

from workers.arena import Arenas
from workers.messages import Encoded, EncodeJob, Failed, FailKind, FromWorker, Pixels, Region
from workers.vision.batch import choose_batch
from workers.vision.preprocess import Preprocessor

logger = logging.getLogger(__name__)


class Encoder(Protocol):
    """A vision tower."""

    device: torch.device
    dtype: torch.dtype
    num_levels: int
    hidden_size: int

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        """Embeddings [num_levels, tokens, hidden_size] per image, in order."""
        ...


class EncodeFault(Exception):
    """One job cannot be served; the message may be shown to a caller."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: EncodeJob
    arrived_at: float  # monotonic seconds


@dataclass(frozen=True, slots=True)
class _Timings:
    """Seconds; the batch's, since an image waits for all of it."""

    preprocess_seconds: float
    encode_seconds: float


class Owner:
    """The images that one worker encodes. Owned by the worker's loop, which calls every method.

    A job ends in exactly one `Encoded` or `Failed`, also when it is aborted or runs out of time.
    """

    def __init__(self, vision: Encoder, arenas: Arenas, max_patches: int) -> None:
        """Serve with `vision`; a batch has at most `max_patches` patches, or a single image."""
        self._vision = vision
        self._arenas = arenas
        self._max_patches = max_patches
        self._preprocessor = Preprocessor(vision.device)
        self._waiting: deque[_Waiting] = deque()
        self._aborted: list[FromWorker] = []  # published by the next step

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting or self._aborted)

    @property
    def num_waiting(self) -> int:
        """Images that no step has taken yet."""
        return len(self._waiting)

    def put(self, job: EncodeJob) -> None:
        """Take in a job; its deadline counts from now."""
        self._waiting.append(_Waiting(job=job, arrived_at=time.monotonic()))

    def abort(self, job_id: str) -> None:
        """Drop a job that still waits; unknown and finished ones are ignored."""
        for entry in self._waiting:
            if entry.job.job_id == job_id:
                self._waiting.remove(entry)
                self._aborted.append(_failed(entry.job, "internal", "aborted"))
                return

    def step(self) -> list[FromWorker]:
        """Encode at most one batch; return the last events of all jobs that ended."""
        events = self._aborted + self._expire(time.monotonic())
        self._aborted = []
        batch = self._take_batch()
        return events + (self._serve(batch) if batch else [])

    def _expire(self, now: float) -> list[FromWorker]:
        late = [entry for entry in self._waiting if now - entry.arrived_at > entry.job.seconds_left]
        for entry in late:
            self._waiting.remove(entry)
        return [_failed(entry.job, "deadline", "image was not encoded in time") for entry in late]

    def _take_batch(self) -> list[_Waiting]:
        num_patches = [entry.job.plan.num_patches for entry in self._waiting]
        size = choose_batch(num_patches, self._max_patches)
        return [self._waiting.popleft() for _ in range(size)]

    def _serve(self, batch: list[_Waiting]) -> list[FromWorker]:
        """Encode a batch; after a fault each job by itself, so that only the culprit fails."""
        try:
            return self._encode(batch)
        except torch.AcceleratorError:
            raise  # nothing works on this device any more; the worker must be started anew
        except Exception as fault:
            if len(batch) == 1:
                job = batch[0].job
                logger.exception("image of job %s failed", job.job_id)
                known = isinstance(fault, EncodeFault)
                message = str(fault) if known else "the vision worker failed on this image"
                return [_failed(job, "internal", message)]
        return [event for entry in batch for event in self._serve([entry])]

    def _encode(self, batch: list[_Waiting]) -> list[FromWorker]:
        started_at = time.monotonic()
        prepared = [self._patches(entry.job) for entry in batch]
        digests = [_digest(patches) for patches in prepared]
        patches = torch.cat(prepared)
        encode_at = time.monotonic()
        embeddings = self._vision.encode(patches, [entry.job.plan.grid for entry in batch])
        _check_finite(embeddings)
        for entry, embedding in zip(batch, embeddings, strict=True):
            self._write(entry.job, embedding)
        timings = _Timings(encode_at - started_at, time.monotonic() - encode_at)
        return [
            self._encoded(entry, embedding, digest, started_at - entry.arrived_at, timings)
            for entry, embedding, digest in zip(batch, embeddings, digests, strict=True)
        ]

    def _patches(self, job: EncodeJob) -> Tensor:
        pixels = _read_pixels(self._arenas, job)
        return self._preprocessor.patches(pixels, job.plan)

    def _write(self, job: EncodeJob, embedding: Tensor) -> None:
        expected = (self._vision.num_levels, job.plan.num_tokens, self._vision.hidden_size)
        if embedding.shape != expected:
            raise EncodeFault(f"embedding is {tuple(embedding.shape)}, planned was {expected}")
        num_bytes = embedding.numel() * embedding.itemsize
        view = _view(self._arenas, job.target, num_bytes)
        target = torch.frombuffer(view, dtype=embedding.dtype, count=embedding.numel())
        target.view(embedding.shape).copy_(embedding)

    def _encoded(
        self,
        entry: _Waiting,
        embedding: Tensor,
        digest: bytes,
        queue_seconds: float,
        timings: _Timings,
    ) -> Encoded:
        return Encoded(
            job_id=entry.job.job_id,
            dtype=str(embedding.dtype).removeprefix("torch."),
            shape=tuple(embedding.shape),
            feature_digest=digest,
            queue_seconds=queue_seconds,
            decode_seconds=0.0,
            digest_seconds=0.0,
            preprocess_seconds=timings.preprocess_seconds,
            encode_seconds=timings.encode_seconds,
        )


def _digest(patches: Tensor) -> bytes:
    return blake2b(patches.cpu().numpy().tobytes(), digest_size=16).digest()


def _read_pixels(arenas: Arenas, job: EncodeJob) -> Tensor:
    """The job's pixels, uint8 [height, width, 3], in place."""
    payload = job.payload
    if not isinstance(payload, Pixels) or payload.stage != "resized":
        raise EncodeFault("this payload is not served yet")
    size = (payload.height, payload.width)
    if size != job.plan.resized_size:
        raise EncodeFault(f"pixels are {size}, planned were {job.plan.resized_size}")
    num_bytes = payload.height * payload.width * 3
    view = _view(arenas, payload.region, num_bytes)
    return torch.frombuffer(view, dtype=torch.uint8, count=num_bytes).view(*size, 3)


def _view(arenas: Arenas, region: Region, num_bytes: int) -> memoryview:
    if region.num_bytes < num_bytes:
        raise EncodeFault(f"region has {region.num_bytes} bytes, {num_bytes} are needed")
    return arenas.view(region)


def _check_finite(embeddings: list[Tensor]) -> None:
    # One answer for the batch, so that the device is waited for once.
    if not bool(torch.stack([torch.isfinite(each).all() for each in embeddings]).all()):
        raise EncodeFault("the vision tower gave values that are not finite")


def _failed(job: EncodeJob, kind: FailKind, message: str) -> Failed:
    return Failed(job_id=job.job_id, kind=kind, message=message)
