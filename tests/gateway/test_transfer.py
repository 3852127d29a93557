"""Embeddings are counted by the way they took, and the time it took them."""

import asyncio
from typing import cast

import pytest

from gateway.encoding.lease import Share
from gateway.jobs.dispatch import Dispatcher
from gateway.observe.metrics import Metrics
from tests.gateway.jobs.test_dispatch import RecordingPool
from workers.messages import GenerateJob, Region, Span, Taken, TensorRef
from workers.pool import Pool
from workers.sampling import Sampling

ENGINE = 2


def job_with(*regions: Region) -> GenerateJob:
    spans = [
        Span(
            start=start,
            num_tokens=1,
            grid=(1, 2, 2),
            embeddings=TensorRef(region, "float32", (1, 1, region.num_bytes // 4)),
            identity=b"",
        )
        for start, region in enumerate(regions)
    ]
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=1, stop_token_ids=()
    )
    return GenerateJob(
        job_id="a",
        token_ids=bytes(12),
        spans=tuple(spans),
        salt=b"",
        sampling=sampling,
        seconds_left=60.0,
    )


def counted(is_copied: bool, *regions: Region) -> tuple[dict[str, float], float]:
    """Bytes by way, and seconds, after an engine has taken a job with these regions."""
    metrics = Metrics()
    dispatcher = Dispatcher(cast("Pool", RecordingPool()), metrics)
    dispatcher.generate(ENGINE, job_with(*regions), Share([]), asyncio.Event())
    taken = Taken(job_id="a", is_copied=is_copied, transfer_seconds=0.25)
    dispatcher.on_event(ENGINE, taken)
    samples = [sample for family in metrics.embedding_bytes.collect() for sample in family.samples]
    ways = {each.labels["transport"]: each.value for each in samples if "total" in each.name}
    seconds = metrics.registry.get_sample_value("fovea_stage_seconds_sum", {"stage": "transfer"})
    return ways, seconds or 0.0


@pytest.mark.parametrize(
    ("region", "is_copied", "way"),
    [
        (Region(1, 0, 640), True, "cpu"),
        (Region(ENGINE, 0, 640), True, "cpu"),  # an engine on a device, shared memory
        (Region(ENGINE, 0, 640), False, "same_process"),
        (Region(1, 0, 640, 77), True, "cuda_ipc"),
        (Region(ENGINE, 0, 640, 77), False, "same_process"),
    ],
)
def test_embeddings_are_counted_by_the_way_they_took(
    region: Region, is_copied: bool, way: str
) -> None:
    assert counted(is_copied, region) == ({way: 640}, 0.25)


def test_a_prompt_may_mix_what_is_in_place_with_what_was_copied() -> None:
    mixed = (Region(ENGINE, 0, 128, 5), Region(0, 0, 64, 6), Region(1, 0, 32, 7))
    assert counted(False, *mixed) == ({"same_process": 128, "cuda_ipc": 96}, 0.25)


def test_text_counts_as_no_transfer() -> None:
    assert counted(True) == ({}, 0.0)
