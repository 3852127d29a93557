"""Every payload becomes what its own plan says, whatever else is in the batch."""

import io

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor

from tests.pictures import encoded, noise
from tests.workers.vision.jobs import Memory
from tests.workers.vision.mixture import (
    GROUNDS,
    PLANS,
    all_jobs,
    displayed,
    file_job,
    file_plan,
    jpeg,
    picture,
    pixel_jobs,
    results,
    run,
    small_plan,
)
from tests.workers.vision.towers import (
    Averager,
    embeddings_payload,
    expected_patches,
    jpeg_payload,
    make_job,
    patches_payload,
    pixels_payload,
    result_of,
    source_payload,
)
from workers.messages import Encoded
from workers.vision.jpeg import decode_jpegs


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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_files_that_need_no_resizing_are_turned(memory: Memory, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = encoded(noise(9, (16, 16)), "JPEG", exif=exif)
    upright = ImageOps.exif_transpose(Image.open(io.BytesIO(file))).convert("RGB")
    plan = small_plan(4, 4)
    jobs = [
        make_job(memory, "file", plan, jpeg_payload(memory, file, orientation)),
        make_job(memory, "pixels", plan, pixels_payload(memory, np.array(upright))),
    ]

    found = results(memory, jobs, run(memory, jobs))

    assert found["file"] == found["pixels"]


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
