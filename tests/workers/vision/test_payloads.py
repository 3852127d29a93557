"""A payload that is not as planned fails its own job, by the fault of whoever made it."""

from collections.abc import Callable

import msgspec
import pytest
import torch

from tests.pictures import encoded, noise
from tests.workers.vision.jobs import Memory
from tests.workers.vision.mixture import (
    PLANS,
    all_jobs,
    file_job,
    jpeg,
    pixel_jobs,
    run,
)
from tests.workers.vision.towers import (
    embeddings_payload,
    expected_patches,
    make_job,
    patches_payload,
    random_picture,
)
from workers.messages import Embeddings, Encoded, EncodeJob, Failed, Patches, Region


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
