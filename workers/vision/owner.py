"""The vision owner: encode jobs in, embeddings in their place and one last event per job out."""

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from workers import memory
from workers.arena import Arenas
from workers.fail_kind import FailKind
from workers.features import OwnPool
from workers.messages import Encoded, EncodeJob, Failed, FromWorker, Patches
from workers.vision.batch import choose_batch
from workers.vision.encoder import Encoder
from workers.vision.lookahead import Ahead, InLine, Materials, Preparation
from workers.vision.materialise import Material, Materialiser
from workers.vision.payloads import JobFault, embeddings_shape, target_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    job: EncodeJob
    arrived_at: float  # monotonic seconds

    def is_late(self, now: float) -> bool:
        return now - self.arrived_at > self.job.seconds_left


@dataclass(frozen=True, slots=True)
class _Batch:
    """Images whose preparation has begun, maybe in another thread."""

    entries: list[_Waiting]
    finish: Callable[[], Materials]  # waits for the preparation


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A job whose image is ready for the tower."""

    entry: _Waiting
    material: Material
    queue_seconds: float  # all the time that was spent on others


class Owner:
    """The images that one worker encodes. Owned by the worker's loop, which calls every method.

    A job ends in exactly one `Encoded` or `Failed`, also when it is aborted or runs out of time.
    """

    def __init__(  # noqa: PLR0913 - what it works with, and the limits of its batches
        self,
        vision: Encoder,
        arenas: Arenas,
        max_patches: int,
        digest_key: bytes,
        looks_ahead: bool,
        pool: OwnPool | None = None,
        num_passes: int = 1,
    ) -> None:
        """Serve with `vision`.

        Args:
            vision: the tower.
            arenas: where payloads lie, and embeddings belong if there is no pool.
            max_patches: limit of a pass, unless it is a single image.
            digest_key: 32 secret bytes, the same in all workers of a gateway.
            looks_ahead: prepare the next batch in a thread while the tower works.
            pool: where embeddings belong, on the tower's device.
            num_passes: of the tower, side by side in a batch.
        """
        self._vision = vision
        self._arenas = arenas
        self._pool = pool
        self._max_patches = max_patches
        self._num_passes = num_passes
        materialiser = Materialiser(vision, arenas, digest_key)
        self._preparation: Preparation = (
            Ahead(materialiser, vision.device) if looks_ahead else InLine(materialiser)
        )
        self._waiting: deque[_Waiting] = deque()
        self._next: _Batch | None = None  # at most one batch is prepared ahead
        self._aborted: set[str] = set()  # jobs of the next batch that nobody wants any more
        self._ended: list[FromWorker] = []  # published by the next step

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do."""
        return bool(self._waiting or self._next or self._ended)

    @property
    def num_waiting(self) -> int:
        """Images that no step has encoded yet."""
        return len(self._waiting) + (len(self._next.entries) if self._next else 0)

    def put(self, job: EncodeJob) -> None:
        """Take in a job; its deadline counts from now."""
        self._waiting.append(_Waiting(job=job, arrived_at=time.monotonic()))

    def abort(self, job_id: str) -> None:
        """Drop a job that is not encoded yet; unknown and finished ones are ignored.

        A job whose image is being prepared ends with the next step, because until then its bytes
        are read.
        """
        for entry in self._waiting:
            if entry.job.job_id == job_id:
                self._waiting.remove(entry)
                self._ended.append(_failed(entry.job, "internal", "aborted"))
                return
        if self._next and any(entry.job.job_id == job_id for entry in self._next.entries):
            self._aborted.add(job_id)

    def step(self) -> list[FromWorker]:
        """Encode at most one batch; return the last events of all jobs that ended."""
        self._expire()
        batch, self._next = self._next or self._start_batch(), None
        if self._preparation.is_ahead:
            self._next = self._start_batch()
        if batch:
            self._encode(self._wanted(batch))
        events, self._ended = self._ended, []
        return events

    def _expire(self) -> None:
        now = time.monotonic()
        for entry in [entry for entry in self._waiting if entry.is_late(now)]:
            self._waiting.remove(entry)
            self._ended.append(_late(entry.job))

    def _start_batch(self) -> _Batch | None:
        num_patches = [entry.job.plan.num_patches for entry in self._waiting]
        size = choose_batch(num_patches, self._max_patches, self._num_passes)
        if size == 0:
            return None
        entries = [self._waiting.popleft() for _ in range(size)]
        finish = self._preparation.start([entry.job for entry in entries])
        return _Batch(entries, finish)

    def _wanted(self, batch: _Batch) -> list[_Prepared]:
        """What there is to encode once the batch is prepared."""
        materials = batch.finish()
        now = time.monotonic()
        aborted, self._aborted = self._aborted, set()
        prepared: list[_Prepared] = []
        for entry, material in zip(batch.entries, materials, strict=True):
            if entry.job.job_id in aborted:
                self._ended.append(_failed(entry.job, "internal", "aborted"))
            elif isinstance(material, JobFault):
                self._ended.append(_failed(entry.job, material.kind, str(material)))
            elif entry.is_late(now):
                self._ended.append(_late(entry.job))
            else:
                queue_seconds = now - entry.arrived_at - material.seconds.total
                prepared.append(_Prepared(entry, material, queue_seconds))
        return prepared

    def _encode(self, batch: list[_Prepared]) -> None:
        """Encode a batch; after a fault each image by itself, so that only the culprit fails."""
        if not batch:
            return
        try:
            self._ended += self._pass(batch)
        except torch.AcceleratorError:
            raise  # nothing works on this device any more; the worker must be started anew
        except Exception as fault:
            if len(batch) == 1:
                job = batch[0].entry.job
                logger.exception("image of job %s failed", job.job_id)
                self._ended.append(_explain(job, fault))
                return
            memory.give_back()
            for prepared in batch:
                self._encode([prepared])

    def _pass(self, batch: list[_Prepared]) -> list[FromWorker]:
        began_at = time.monotonic()
        embeddings = self._embeddings(batch)
        for prepared, embedding in zip(batch, embeddings, strict=True):
            self._write(prepared.entry.job, embedding)
        self._wait()
        seconds = time.monotonic() - began_at
        return [
            _encoded(prepared, embedding, seconds)
            for prepared, embedding in zip(batch, embeddings, strict=True)
        ]

    def _embeddings(self, batch: list[_Prepared]) -> list[Tensor]:
        """Of every image, in order; those that came encoded are as they came."""
        rest = [prepared for prepared in batch if not prepared.material.is_encoded]
        results = iter(self._run_tower(rest) if rest else [])
        return [
            prepared.material.features if prepared.material.is_encoded else next(results)
            for prepared in batch
        ]

    def _run_tower(self, batch: list[_Prepared]) -> list[Tensor]:
        patches = [prepared.material.features for prepared in batch]
        joined = patches[0] if len(patches) == 1 else torch.cat(patches)
        grids = [prepared.entry.job.plan.grid for prepared in batch]
        embeddings = self._vision.encode(joined, grids)
        _check_finite(embeddings)
        return embeddings

    def _write(self, job: EncodeJob, embedding: Tensor) -> None:
        expected = embeddings_shape(job.plan, self._vision)
        if embedding.shape != expected:
            message = f"embedding is {tuple(embedding.shape)}, planned was {expected}"
            raise JobFault("internal", message)
        target_of(self._arenas, self._pool, job, embedding.dtype, expected).copy_(embedding)

    def _wait(self) -> None:
        """Wait until the device has written: engines of other processes read in their own time."""
        if self._vision.device.type == "cuda":
            torch.cuda.current_stream(self._vision.device).synchronize()


def _check_finite(embeddings: Sequence[Tensor]) -> None:
    # One answer for the batch, so that the device is waited for once.
    if not bool(torch.stack([torch.isfinite(each).all() for each in embeddings]).all()):
        raise JobFault("internal", "the vision tower gave values that are not finite")


def _explain(job: EncodeJob, fault: Exception) -> Failed:
    if not isinstance(fault, JobFault):
        kind: FailKind = "out_of_memory" if memory.is_short(fault) else "internal"
        return _failed(job, kind, "the vision worker failed on this image")
    # Numbers that a caller made up may be too large for a tower that is well.
    kind = "bad_input" if isinstance(job.payload, Patches) else fault.kind
    return _failed(job, kind, str(fault))


def _encoded(prepared: _Prepared, embedding: Tensor, encode_seconds: float) -> Encoded:
    material = prepared.material
    return Encoded(
        job_id=prepared.entry.job.job_id,
        dtype=str(embedding.dtype).removeprefix("torch."),
        shape=tuple(embedding.shape),
        feature_digest=material.digest,
        queue_seconds=prepared.queue_seconds,
        decode_seconds=material.seconds.decode,
        preprocess_seconds=material.seconds.preprocess,
        digest_seconds=material.seconds.digest,
        encode_seconds=encode_seconds,  # the batch's, since an image waits for all of it
    )


def _late(job: EncodeJob) -> Failed:
    return _failed(job, "deadline", "image was not encoded in time")


def _failed(job: EncodeJob, kind: FailKind, message: str) -> Failed:
    return Failed(job_id=job.job_id, kind=kind, message=message)
