"""Jobs with every payload and many plans, and what an owner makes of them."""

import io
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from tests.pictures import encoded, noise
from tests.plans import make_plan
from tests.workers.vision.jobs import Memory
from tests.workers.vision.towers import (
    Averager,
    embeddings_payload,
    expected_patches,
    jpeg_payload,
    make_job,
    patches_payload,
    pixels_payload,
    random_picture,
    result_of,
    source_payload,
)
from workers.families.plan import ImagePlan, plain
from workers.messages import Encoded, EncodeJob, FromWorker
from workers.vision.owner import Owner

KEY = bytes(range(32))


def small_plan(rows: int, columns: int, **fields: Any) -> ImagePlan:
    """A plan of rows x columns patches of 4 x 4 pixels; the picture had that size already."""
    size = (4 * rows, 4 * columns)
    source_size = fields.pop("source_size", size)
    defaults: dict[str, Any] = {
        "resized_size": size,
        "grid": (1, rows, columns),
        "patch_size": 4,
        "num_tokens": rows * columns // 4,
    }
    return make_plan(source_size, **(defaults | fields))


PLANS = [
    small_plan(2, 4),
    small_plan(2, 4, mean=(0.48, 0.46, 0.41), std=(0.27, 0.26, 0.28)),
    small_plan(6, 2, rescale=1 / 128),
    small_plan(4, 4, patch_order="raster", background=None),
    small_plan(4, 8, resized_size=(13, 31), padded_size=(16, 32), first_pass="vertical"),
]


def pixel_jobs(memory: Memory) -> list[EncodeJob]:
    return [
        make_job(memory, f"pixels-{index}", plan, pixels_payload(memory, picture(index, plan)))
        for index, plan in enumerate(PLANS)
    ]


def picture(index: int, plan: ImagePlan) -> Any:
    return random_picture(*plan.resized_size, seed=index)


TURNED = 6  # the EXIF orientation of a picture that was taken upright


def jpeg() -> bytes:
    """30 x 50 as stored, 50 x 30 as displayed (width, height)."""
    exif = Image.Exif()
    exif[0x0112] = TURNED
    return encoded(noise(9, (30, 50)), "JPEG", exif=exif)


def displayed() -> Image.Image:
    return ImageOps.exif_transpose(Image.open(io.BytesIO(jpeg()))).convert("RGB")


def file_plan(**fields: Any) -> ImagePlan:
    return small_plan(4, 6, source_size=(30, 50), **fields)


def file_job(memory: Memory, name: str, file: bytes, **fields: Any) -> EncodeJob:
    return make_job(memory, name, file_plan(**fields), jpeg_payload(memory, file, TURNED))


def transparent() -> Any:
    """A picture with holes, RGBA, 40 x 24 pixels."""
    colours = random_picture(24, 40, seed=12)
    alpha = random_picture(24, 40, seed=13)[..., :1]
    return np.concatenate([colours, alpha], axis=2)


GROUNDS = [None, plain((10, 200, 30)), plain((255, 255, 255))]


def all_jobs(memory: Memory) -> list[EncodeJob]:
    """Every payload, and pixels by many plans."""
    sources = [
        make_job(
            memory,
            f"source-{index}",
            small_plan(4, 4, source_size=(24, 40), background=ground),
            source_payload(memory, transparent()),
        )
        for index, ground in enumerate(GROUNDS)
    ]
    files = [file_job(memory, "file", jpeg()), file_job(memory, "dark", jpeg(), rescale=1 / 300)]
    patches = expected_patches(random_picture(16, 24, seed=7), small_plan(4, 6))
    embeddings = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(3))
    others = [
        make_job(memory, "patches", small_plan(4, 6), patches_payload(memory, patches)),
        make_job(memory, "embeddings", small_plan(2, 6), embeddings_payload(memory, embeddings)),
    ]
    return [*pixel_jobs(memory), *others, *sources, *files]


def run(memory: Memory, jobs: list[EncodeJob], tower: Averager | None = None) -> list[FromWorker]:
    owner = Owner(tower or Averager(), memory.worker, 1 << 20, KEY, looks_ahead=False)
    for job in jobs:
        owner.put(job)
    return owner.step()


def results(
    memory: Memory, jobs: list[EncodeJob], events: list[FromWorker]
) -> dict[str, tuple[bytes, bytes]]:
    """Of each job its digest and its embeddings, as bytes."""
    found = {}
    for job, event in zip(jobs, events, strict=True):
        assert isinstance(event, Encoded)
        assert event.job_id == job.job_id
        values = result_of(memory, job, event.shape, event.dtype)
        found[job.job_id] = (event.feature_digest, values.numpy().tobytes())
    return found
