"""An owner on a CUDA device: the CPU's values, digests by tiles, files by nvJPEG, work ahead."""

from collections.abc import Iterator

import msgspec
import pytest
import torch

from tests.pictures import encoded, noise
from tests.workers.vision.jobs import Memory
from tests.workers.vision.mixture import KEY, all_jobs
from tests.workers.vision.test_digest import slow_sums
from tests.workers.vision.test_jpeg import broken_files, by_pillow, tensor, tensor_or_empty
from tests.workers.vision.towers import Averager, result_of
from workers.devices import count_gpus
from workers.families.plan import Backend
from workers.messages import Encoded, EncodeJob, JpegBytes
from workers.vision.digest import tile_key, tile_sums
from workers.vision.jpeg import decode_jpegs, upright
from workers.vision.owner import Owner

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]
CPU, CUDA = torch.device("cpu"), torch.device("cuda:0")
FEW_LEVELS = 8  # of 255, by which nvJPEG may differ from libjpeg-turbo


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.gateway.close()


def jobs_for(memory: Memory, backend: Backend) -> list[EncodeJob]:
    return [
        msgspec.structs.replace(job, plan=msgspec.structs.replace(job.plan, backend=backend))
        for job in all_jobs(memory)
    ]


def encode(
    memory: Memory, jobs: list[EncodeJob], device: torch.device, looks_ahead: bool
) -> dict[str, tuple[bytes, torch.Tensor]]:
    """Of each job its digest and its embeddings; batches are of two images or so."""
    owner = Owner(Averager(device=device), memory.worker, 40, KEY, looks_ahead)
    for job in jobs:
        owner.put(job)
    found = {}
    by_id = {job.job_id: job for job in jobs}
    while owner.busy:
        for event in owner.step():
            assert isinstance(event, Encoded)
            values = result_of(memory, by_id[event.job_id], event.shape, event.dtype)
            found[event.job_id] = (event.feature_digest, values)
    assert set(found) == set(by_id)
    return found


@pytest.mark.parametrize("looks_ahead", [False, True])
@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_every_payload_gives_the_cpus_values(
    memory: Memory, backend: Backend, looks_ahead: bool
) -> None:
    jobs = jobs_for(memory, backend)
    expected = encode(memory, jobs, CPU, looks_ahead=False)
    for _ in range(20):  # a race between the streams would show sooner or later
        found = encode(memory, jobs, CUDA, looks_ahead)
        for job in jobs:
            is_nvjpeg = backend == "cuda" and isinstance(job.payload, JpegBytes)
            tolerance = FEW_LEVELS / 255 if is_nvjpeg else 1e-6
            torch.testing.assert_close(
                found[job.job_id][1], expected[job.job_id][1], rtol=0, atol=tolerance
            )


def test_digests_are_the_same_in_any_order_and_way(memory: Memory) -> None:
    jobs = jobs_for(memory, "cuda")
    runs = [
        encode(memory, order, CUDA, looks_ahead)
        for order in (jobs, jobs[::-1])
        for looks_ahead in (False, True)
    ]
    for job in jobs:
        assert len({run[job.job_id][0] for run in runs}) == 1
    assert len({digest for digest, _ in runs[0].values()}) == len(jobs)


def test_tile_sums_are_nh_in_plain_integers() -> None:
    key = tile_key(KEY)
    features = torch.randint(0, 256, (3, 7001), dtype=torch.uint8)

    sums = tile_sums(features.to(CUDA), torch.from_numpy(key).to(CUDA)).cpu()

    unsigned = [[value % 2**64 for value in lanes] for lanes in sums.tolist()]
    data = bytes(features.flatten().tolist())
    assert unsigned == slow_sums(data, [int(word) % 2**32 for word in key])


def test_files_are_decoded_on_the_device_and_a_bad_one_fails_alone() -> None:
    good = [encoded(noise(seed, (300 + seed, 210)), "JPEG", quality=90) for seed in range(3)]
    for broken in broken_files():
        files = [tensor(good[0]), tensor_or_empty(broken), tensor(good[1]), tensor(good[2])]

        results = decode_jpegs(files, CUDA)

        assert results[1] is None
        for data, pixels in zip(good, (results[0], results[2], results[3]), strict=True):
            assert pixels is not None
            assert pixels.device == CUDA
            difference = pixels.cpu().int() - torch.from_numpy(by_pillow(data)).int()
            assert int(difference.abs().max()) <= FEW_LEVELS


def test_pictures_are_turned_on_the_device_as_on_the_cpu() -> None:
    pixels = torch.randint(0, 256, (31, 50, 3), dtype=torch.uint8)
    for orientation in range(1, 9):
        turned = upright(pixels.to(CUDA), orientation)
        assert torch.equal(turned.cpu(), upright(pixels, orientation))
