"""Main of a worker process with a real owner that writes down what reaches it.

Each worker appends to a file of its own in the checkpoint's folder, a JSON object per line.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.fakes import FakeLanguage
from workers.arena import Arenas
from workers.entry import main
from workers.families import family_of, load_layout
from workers.messages import EncodeJob, Ready, Region, Start
from workers.vision.owner import Owner

RECORDING_COMMAND = (sys.executable, "-m", "tests.recording_worker")  # for the pool
Note = Callable[..., None]


def record_path(model: Path, worker: str) -> Path:
    """Where the worker of this name writes."""
    return model / f"{worker}.records"


def content_of(patches: Tensor) -> str:
    """A short name for one image's patches."""
    return blake2b(patches.numpy().tobytes(), digest_size=8).hexdigest()


class RecordingArenas(Arenas):
    """Writes down which regions are looked at."""

    def __init__(self, inner: Arenas, note: Note) -> None:
        self._inner = inner
        self._note = note

    def view(self, region: Region) -> memoryview:
        self._note("viewed", arena=region.arena, offset=region.offset)
        return self._inner.view(region)


class RecordingTower:
    """A real tower that writes down what it is given."""

    def __init__(self, inner: Any, note: Note) -> None:
        self._inner = inner
        self._note = note

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        images = torch.split(patches, [rows * columns for _, rows, columns in grids])
        for grid, image in zip(grids, images, strict=True):
            self._note("encoded", grid=grid, content=content_of(image))
        results: list[Tensor] = self._inner.encode(patches, grids)
        return results


class RecordingOwner(Owner):
    """Writes down which jobs come."""

    note: Note

    def put(self, job: EncodeJob) -> None:
        self.note("received", job=job.job_id, arena=job.payload.region.arena)
        super().put(job)


def build_recording(
    start: Start, arenas: Arenas, progress: Callable[[int, int], None]
) -> tuple[Owner | None, FakeLanguage | None, Ready]:
    """A real owner for the role vision, a fake engine for the role language."""
    model = Path(start.model)
    torch.set_num_threads(start.num_threads)
    record = record_path(model, start.name)

    def note(what: str, **facts: object) -> None:
        with record.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"what": what, "at": time.monotonic(), **facts}) + "\n")

    load = importlib.import_module(f"workers.families.{family_of(model)}.load")
    models = load.load_models(model, ("vision",), start.device, start.dtype, progress)
    owner = RecordingOwner(
        RecordingTower(models.vision, note),
        RecordingArenas(arenas, note),
        start.max_vision_batch_patches or 1 << 20,
        start.digest_key,
        looks_ahead=True,
    )
    owner.note = note
    language = FakeLanguage(arenas) if "language" in start.roles else None
    ready = Ready(
        embedding_bytes_per_token=models.vision.embedding_bytes_per_token,
        max_context_tokens=load_layout(model).max_context_tokens if language else 0,
        kv_cache_tokens=4096 if language else 0,
        load_seconds=0.0,
    )
    return owner, language, ready


if __name__ == "__main__":
    main(sys.argv[1:], build_recording)
