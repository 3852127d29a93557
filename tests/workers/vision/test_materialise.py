"""Every payload becomes what its own plan says, whatever else is in the batch."""

import io
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

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
from workers.messages import Embeddings, Encoded, EncodeJob, Failed, FromWorker, Patches, Region
from workers.vision.jpeg import decode_jpegs
from workers.vision.owner import Owner

KEY = bytes(range(32))


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.gateway.close()


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


def test_pixels_are_cut_and_normalised_by_their_own_plan(memory: Memory) -> None:
    jobs = pixel_jobs(memory)

    events = run(memory, jobs)

    for index, (job, event) in enumerate(zip(jobs, events, strict=True)):
        assert isinstance(event, Encoded)
        patches = expected_patches(picture(index, job.plan), job.plan)
        (expected,) = Averager().encode(patches, [job.plan.grid])
        assert torch.equal(result_of(memory, job, event.shape, event.dtype), expected)


def test_patches_are_taken_as_they_are(memory: Memory) -> None:
    plan = PLANS[4]
    patches = expected_patches(picture(4, plan), plan)
    jobs = [
        make_job(memory, "pixels", plan, pixels_payload(memory, picture(4, plan))),
        make_job(memory, "patches", plan, patches_payload(memory, patches)),
    ]

    found = results(memory, jobs, run(memory, jobs))

    assert found["pixels"][1] == found["patches"][1]


def test_files_are_turned_and_resized(memory: Memory) -> None:
    job = file_job(memory, "file", jpeg())
    image = displayed().resize((24, 16), Image.Resampling.BICUBIC)
    (expected,) = Averager().encode(expected_patches(np.asarray(image), job.plan), [job.plan.grid])

    (event,) = run(memory, [job])

    assert isinstance(event, Encoded)
    assert torch.equal(result_of(memory, job, event.shape, event.dtype), expected)
    assert event.decode_seconds > 0


def test_equal_pixels_have_one_digest_however_they_come(memory: Memory) -> None:
    """Other files, decoded here or in the gateway, resized here or there, backed or not."""
    plan = file_plan()
    upright = np.array(displayed())
    again = encoded(displayed(), "PNG")
    resized = np.asarray(displayed().resize((24, 16), Image.Resampling.BICUBIC))
    opaque = np.dstack([upright, np.full((30, 50), 255, np.uint8)])
    jobs = [
        file_job(memory, "file", jpeg()),
        make_job(memory, "source", plan, source_payload(memory, upright)),
        make_job(
            memory, "png", plan, source_payload(memory, np.array(Image.open(io.BytesIO(again))))
        ),
        make_job(memory, "resized", plan, pixels_payload(memory, resized)),
        make_job(memory, "opaque", file_plan(background=None), source_payload(memory, opaque)),
        make_job(memory, "cuda", file_plan(backend="cuda"), source_payload(memory, upright)),
    ]

    found = results(memory, jobs, run(memory, jobs))

    assert len(set(found.values())) == 1


def test_a_ground_that_shows_is_another_image(memory: Memory) -> None:
    jobs = [job for job in all_jobs(memory) if job.job_id.startswith("source")]

    found = results(memory, jobs, run(memory, jobs))

    assert len({digest for digest, _ in found.values()}) == len(GROUNDS)


def short_file() -> bytes:
    return jpeg()[:-30]


def other_size() -> bytes:
    return encoded(noise(9, (50, 30)), "JPEG")


def no_jpeg() -> bytes:
    return encoded(noise(9, (30, 50)), "PNG")


@pytest.mark.parametrize("spoil", [short_file, other_size, no_jpeg, lambda: b"\xff"])
def test_a_file_that_cannot_be_used_is_undecoded_and_alone(
    memory: Memory, spoil: Callable[[], bytes]
) -> None:
    good = all_jobs(memory)
    bad = file_job(memory, "bad", spoil())

    events = run(memory, [*good[:-1], bad, good[-1]])

    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.job_id, event.kind) for event in failed] == [("bad", "undecoded")]
    encoded_ids = [event.job_id for event in events if isinstance(event, Encoded)]
    assert encoded_ids == [job.job_id for job in good]


def test_pictures_are_decoded_in_groups_of_bounded_size(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [file_job(memory, f"file-{n}", jpeg()) for n in range(5)]
    groups: list[int] = []

    def decode(files: list[Tensor], device: torch.device) -> list[Tensor | None]:
        groups.append(len(files))
        return decode_jpegs(files, device)

    monkeypatch.setattr("workers.vision.materialise.decode_jpegs", decode)
    monkeypatch.setattr("workers.vision.materialise.MAX_DECODED_BYTES", 2 * 30 * 50 * 3)

    assert len(results(memory, jobs, run(memory, jobs))) == 5
    assert groups == [2, 2, 1]


def test_embeddings_skip_the_tower(memory: Memory) -> None:
    embeddings = torch.randn(2, 2, 6)
    jobs = [make_job(memory, "given", PLANS[0], embeddings_payload(memory, embeddings))]
    tower = Averager()

    (event,) = run(memory, jobs, tower)

    assert tower.passes == []
    assert isinstance(event, Encoded)
    assert torch.equal(result_of(memory, jobs[0], event.shape, event.dtype), embeddings)


def test_a_batch_of_all_payloads_gives_what_each_gives_alone(memory: Memory) -> None:
    jobs = all_jobs(memory)
    alone: dict[str, tuple[bytes, bytes]] = {}
    for job in jobs:
        alone |= results(memory, [job], run(memory, [job]))
    assert len({digest for digest, _ in alone.values()}) == len(jobs)

    for order in (jobs, jobs[::-1], jobs[3:] + jobs[:3]):
        tower = Averager()
        together = results(memory, order, run(memory, order, tower))
        assert together == alone
        assert len(tower.passes) == 1


def missing_patch(memory: Memory) -> Patches:
    return patches_payload(memory, expected_patches(random_picture(8, 16), PLANS[0])[:-1])


def broken_patch(memory: Memory) -> Patches:
    patches = expected_patches(random_picture(8, 16), PLANS[0])
    patches[3, 5] = float("nan")
    return patches_payload(memory, patches)


def huge_patches(memory: Memory) -> Patches:
    return patches_payload(memory, torch.full((8, 96), 3e38))  # finite; their sum is not


def given(*shape: int, dtype: torch.dtype = torch.float32) -> Callable[[Memory], Embeddings]:
    return lambda memory: embeddings_payload(memory, torch.ones(shape, dtype=dtype))


def broken_embeddings(memory: Memory) -> Embeddings:
    embeddings = torch.ones(2, 2, 6)
    embeddings[1, 1, 5] = float("inf")
    return embeddings_payload(memory, embeddings)


def short_embeddings(memory: Memory) -> Embeddings:
    payload = embeddings_payload(memory, torch.ones(2, 2, 6))
    region = msgspec.structs.replace(payload.region, num_bytes=payload.region.num_bytes - 4)
    return msgspec.structs.replace(payload, region=region)


@pytest.mark.parametrize(
    "spoil",
    [
        missing_patch,
        broken_patch,
        huge_patches,
        given(1, 2, 6),
        given(2, 3, 6),
        given(2, 2, 5),
        given(2, 2, 6, dtype=torch.bfloat16),
        given(2, 2, 6, dtype=torch.int32),
        broken_embeddings,
        short_embeddings,
    ],
)
def test_a_wrong_tensor_of_a_caller_fails_alone_as_bad_input(
    memory: Memory, spoil: Callable[[Memory], Patches | Embeddings]
) -> None:
    good = all_jobs(memory)
    bad = make_job(memory, "bad", PLANS[0], spoil(memory))

    events = run(memory, [*good[:2], bad, *good[2:]])

    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.job_id, event.kind) for event in failed] == [("bad", "bad_input")]
    encoded_ids = [event.job_id for event in events if isinstance(event, Encoded)]
    assert encoded_ids == [job.job_id for job in good]
    assert not any(memory.gateway.view(bad.target))


def wrong_height(job: EncodeJob) -> EncodeJob:
    return msgspec.structs.replace(job, payload=msgspec.structs.replace(job.payload, height=9))


def outside_the_arena(job: EncodeJob) -> EncodeJob:
    region = Region(0, 1 << 40, job.payload.region.num_bytes)
    return msgspec.structs.replace(job, payload=msgspec.structs.replace(job.payload, region=region))


def of_another_arena(job: EncodeJob) -> EncodeJob:
    return msgspec.structs.replace(job, target=msgspec.structs.replace(job.target, arena=5))


def transparent_after_resizing(job: EncodeJob) -> EncodeJob:
    return msgspec.structs.replace(job, payload=msgspec.structs.replace(job.payload, channels=4))


@pytest.mark.parametrize(
    "spoil", [wrong_height, outside_the_arena, of_another_arena, transparent_after_resizing]
)
def test_a_job_that_contradicts_itself_fails_alone_as_ours(
    memory: Memory, spoil: Callable[[EncodeJob], EncodeJob]
) -> None:
    jobs = pixel_jobs(memory)
    jobs[1] = spoil(jobs[1])

    events = run(memory, jobs)

    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.job_id, event.kind) for event in failed] == [("pixels-1", "internal")]
    assert sum(isinstance(event, Encoded) for event in events) == 4


def test_embeddings_are_of_the_towers_dtype(memory: Memory) -> None:
    embeddings = torch.randn(2, 2, 6).to(torch.bfloat16)
    job = make_job(memory, "given", PLANS[0], embeddings_payload(memory, embeddings))

    (event,) = run(memory, [job], Averager(dtype=torch.bfloat16))

    assert isinstance(event, Encoded)
    assert event.dtype == "bfloat16"
    assert torch.equal(result_of(memory, job, event.shape, event.dtype), embeddings)


def test_equal_pixels_have_one_digest_and_other_dtypes_of_the_tower_another(memory: Memory) -> None:
    job = pixel_jobs(memory)[2]
    again = make_job(memory, "again", job.plan, pixels_payload(memory, picture(2, job.plan)))
    events = run(memory, [job, again]) + run(memory, [job], Averager(dtype=torch.float16))

    first, same, other = (e.feature_digest for e in events if isinstance(e, Encoded))

    assert first == same != other
