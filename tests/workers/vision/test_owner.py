"""The owner answers as transformers does, fails only the culprit, and ends every job once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.checkpoints import make_checkpoint
from tests.workers.vision.jobs import Bench, Memory, pictures, references
from workers.families.qwen_vl.layout import QwenLayout, read_layout
from workers.families.qwen_vl.load import load_models
from workers.families.qwen_vl.vision import VisionModel
from workers.messages import Encoded, EncodeJob, Failed, FromWorker, Pixels
from workers.vision.encoder import Encoder
from workers.vision.owner import Owner

KEY = bytes(range(32))


@pytest.fixture(scope="module", params=["qwen2_5_vl", "qwen3_vl"])
def loaded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[QwenLayout, VisionModel, list[Tensor]]:
    path = make_checkpoint(tmp_path_factory.mktemp("owner"), request.param)
    models = load_models(path, ("vision",), "cpu", "float32", lambda _done, _total: None)
    assert models.vision is not None
    return read_layout(path), models.vision, references(path)


@pytest.fixture(params=[False, True], ids=["in-line", "ahead"])
def bench(
    loaded: tuple[QwenLayout, VisionModel, list[Tensor]], request: pytest.FixtureRequest
) -> Iterator[Bench]:
    memory = Memory()
    yield Bench(*loaded, memory, looks_ahead=request.param)
    memory.gateway.close()


def make_owner(bench: Bench, max_patches: int = 1 << 20, vision: Encoder | None = None) -> Owner:
    return Owner(vision or bench.vision, bench.memory.worker, max_patches, KEY, bench.looks_ahead)


def run_until_idle(owner: Owner) -> list[FromWorker]:
    events: list[FromWorker] = []
    while owner.busy:
        events += owner.step()
    return events


def ids(events: list[FromWorker], kind: type[Encoded] | type[Failed]) -> list[str]:
    return [event.job_id for event in events if isinstance(event, kind)]


@dataclass
class Flaky:
    """A real tower that raises, or spoils its answer, when a batch holds a certain grid."""

    inner: VisionModel
    grid: tuple[int, int, int]
    fault: Exception | None
    batches: list[int] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        self.batches.append(len(grids))
        if self.fault is not None and self.grid in grids:
            raise self.fault
        results = [each.clone() for each in self.inner.encode(patches, grids)]
        for result, grid in zip(results, grids, strict=True):
            if grid == self.grid:
                result[0, 0, 0] = float("nan")
        return results


@pytest.mark.parametrize("max_patches", [1, 60, 1 << 20])
def test_embeddings_equal_transformers_whatever_the_batch(bench: Bench, max_patches: int) -> None:
    owner = make_owner(bench, max_patches)
    jobs = [bench.job(f"job-{index}", image) for index, image in enumerate(pictures())]
    for job in jobs:
        owner.put(job)

    events = run_until_idle(owner)

    assert ids(events, Encoded) == [job.job_id for job in jobs]
    for job, event, expected in zip(jobs, events, bench.expected, strict=True):
        torch.testing.assert_close(bench.result(job, event), expected, rtol=0, atol=1e-5)


def test_swapped_pixels_are_noticed_by_the_comparison(bench: Bench) -> None:
    owner = make_owner(bench)
    job = bench.job("upside-down", pictures()[0].transpose(Image.Transpose.ROTATE_180))
    owner.put(job)

    result = bench.result(job, owner.step()[0])

    assert float((result - bench.expected[0]).abs().max()) > 1e-2


def test_a_step_takes_one_batch_within_the_limit_in_order(bench: Bench) -> None:
    jobs = [bench.job(f"job-{index}", image) for index, image in enumerate(pictures())]
    first_two = sum(job.plan.num_patches for job in jobs[:2])
    owner = make_owner(bench, first_two)
    for job in jobs:
        owner.put(job)

    events = owner.step()

    assert ids(events, Encoded) == ["job-0", "job-1"]
    assert owner.num_waiting == 3


def test_timings_are_told(bench: Bench) -> None:
    owner = make_owner(bench)
    owner.put(bench.job("timed", pictures()[1]))

    event = owner.step()[0]

    assert isinstance(event, Encoded)
    assert event.queue_seconds > 0
    assert event.preprocess_seconds > 0
    assert event.encode_seconds > 0


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ValueError("secret detail"), "internal"),
        (None, "internal"),
        (torch.OutOfMemoryError("tried to allocate a secret"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate secret"), "out_of_memory"),
        (MemoryError("secret"), "out_of_memory"),
    ],
)
def test_only_the_culprit_of_a_batch_fails(
    bench: Bench, fault: Exception | None, kind: str
) -> None:
    jobs = [bench.job(f"job-{index}", image) for index, image in enumerate(pictures())]
    flaky = Flaky(bench.vision, jobs[2].plan.grid, fault)
    owner = make_owner(bench, vision=flaky)
    for job in jobs:
        owner.put(job)

    events = owner.step()

    assert ids(events, Failed) == ["job-2"]
    assert ids(events, Encoded) == ["job-0", "job-1", "job-3", "job-4"]
    assert flaky.batches == [5, 1, 1, 1, 1, 1]
    failed = next(event for event in events if isinstance(event, Failed))
    assert failed.kind == kind
    assert "secret" not in failed.message
    expected = bench.expected[4]
    torch.testing.assert_close(bench.result(jobs[4], events[4]), expected, rtol=0, atol=1e-5)


def test_values_that_are_not_finite_are_never_written(bench: Bench) -> None:
    job = bench.job("spoilt", pictures()[0])
    owner = make_owner(bench, vision=Flaky(bench.vision, job.plan.grid, None))
    owner.put(job)

    (event,) = owner.step()

    assert isinstance(event, Failed)
    assert "finite" in event.message
    assert not any(bench.memory.gateway.view(job.target))


def test_a_broken_device_ends_the_worker(bench: Bench) -> None:
    job = bench.job("unlucky", pictures()[0])
    broken = Flaky(bench.vision, job.plan.grid, torch.AcceleratorError("device is lost"))
    owner = make_owner(bench, vision=broken)
    owner.put(job)

    with pytest.raises(torch.AcceleratorError):
        owner.step()


def wrong_size(job: EncodeJob) -> EncodeJob:
    assert isinstance(job.payload, Pixels)
    payload = msgspec.structs.replace(job.payload, height=job.payload.height - 1)
    return msgspec.structs.replace(job, payload=payload)


def short_pixels(job: EncodeJob) -> EncodeJob:
    region = msgspec.structs.replace(job.payload.region, num_bytes=100)
    return msgspec.structs.replace(job, payload=msgspec.structs.replace(job.payload, region=region))


def short_target(job: EncodeJob) -> EncodeJob:
    region = msgspec.structs.replace(job.target, num_bytes=job.target.num_bytes - 1)
    return msgspec.structs.replace(job, target=region)


def wrong_tokens(job: EncodeJob) -> EncodeJob:
    plan = msgspec.structs.replace(job.plan, num_tokens=job.plan.num_tokens - 1)
    return msgspec.structs.replace(job, plan=plan)


@pytest.mark.parametrize("spoil", [wrong_size, short_pixels, short_target, wrong_tokens])
def test_a_job_that_does_not_fit_its_plan_fails_alone(bench: Bench, spoil: Any) -> None:
    owner = make_owner(bench)
    images = pictures()
    owner.put(bench.job("good", images[0]))
    owner.put(spoil(bench.job("bad", images[1])))

    events = owner.step()

    assert (ids(events, Encoded), ids(events, Failed)) == (["good"], ["bad"])


def test_job_past_its_deadline_is_not_encoded(bench: Bench) -> None:
    owner = make_owner(bench)
    owner.put(bench.job("late", pictures()[0], seconds_left=-1.0))
    owner.put(bench.job("in-time", pictures()[1]))

    events = owner.step()

    assert [(type(event), event.job_id) for event in events if hasattr(event, "job_id")] == [
        (Failed, "late"),
        (Encoded, "in-time"),
    ]
    assert isinstance(events[0], Failed)
    assert events[0].kind == "deadline"


def test_aborted_job_ends_once_and_is_not_encoded(bench: Bench) -> None:
    owner = make_owner(bench)
    owner.put(bench.job("gone", pictures()[0]))
    owner.put(bench.job("stays", pictures()[1]))
    owner.abort("gone")
    owner.abort("gone")
    owner.abort("never-seen")

    events = run_until_idle(owner)

    assert (ids(events, Failed), ids(events, Encoded)) == (["gone"], ["stays"])


def test_abort_after_the_end_does_nothing(bench: Bench) -> None:
    owner = make_owner(bench)
    owner.put(bench.job("done", pictures()[0]))
    owner.step()

    owner.abort("done")

    assert not owner.busy
    assert owner.step() == []
