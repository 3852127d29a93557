"""An owner with a pool writes there and nowhere else, and never into the pool of another life."""

from collections.abc import Iterator

import msgspec
import pytest
import torch

from tests.checkpoints import make_checkpoint
from tests.shared_pools import SharedPools
from tests.workers.vision.jobs import Bench, Memory, pictures
from workers.families.qwen_vl.layout import read_layout
from workers.families.qwen_vl.load import load_models
from workers.features import make_pool
from workers.messages import Encoded, EncodeJob, Failed, FromWorker, Region
from workers.vision.owner import Owner

POOL_BYTES = 1 << 20


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = make_checkpoint(tmp_path_factory.mktemp("pool"), "qwen2_5_vl")
    models = load_models(path, ("vision",), "cpu", "float32", lambda _done, _total: None)
    assert models.vision is not None
    memory = Memory()
    yield Bench(read_layout(path), models.vision, [], memory, looks_ahead=False)
    memory.gateway.close()


def encode(owner: Owner, *jobs: EncodeJob) -> list[FromWorker]:
    for job in jobs:
        owner.put(job)
    events: list[FromWorker] = []
    while owner.busy:
        events += owner.step()
    return events


def test_embeddings_are_written_to_the_pool_and_not_to_the_arena(bench: Bench) -> None:
    pool = make_pool(SharedPools(), POOL_BYTES, is_shared=False)
    assert pool.handle == b""
    owner = Owner(bench.vision, bench.memory.worker, 1 << 20, bytes(32), False, pool)
    in_arena = [bench.job(str(n), picture) for n, picture in enumerate(pictures())]
    in_pool, offset = [], 128
    for job in in_arena:
        region = Region(0, offset, job.target.num_bytes, pool.number)
        in_pool.append(msgspec.structs.replace(job, job_id=f"pool {job.job_id}", target=region))
        bench.memory.gateway.view(job.target)[:] = bytes(job.target.num_bytes)
        offset += job.target.num_bytes
    events = encode(owner, *in_pool)
    assert not any(any(bench.memory.gateway.view(job.target)) for job in in_arena)
    encode(owner, *in_arena)
    for job, other, event in zip(in_arena, in_pool, events, strict=True):
        assert isinstance(event, Encoded)
        expected = torch.frombuffer(bench.memory.gateway.view(job.target), dtype=torch.uint8)
        assert expected.any()
        assert torch.equal(pool.view(other.target), expected)
    assert not pool.content[:128].any()
    assert not pool.content[offset:].any()


def test_a_target_in_the_pool_of_an_earlier_process_is_gone_and_nothing_is_written(
    bench: Bench,
) -> None:
    pool = make_pool(SharedPools(), POOL_BYTES, is_shared=False)
    job = bench.job("a", pictures()[0])
    region = Region(0, 0, job.target.num_bytes, pool.number + 1)
    job = msgspec.structs.replace(job, target=region)
    for mine in (pool, None):
        owner = Owner(bench.vision, bench.memory.worker, 1 << 20, bytes(32), False, mine)
        (event,) = encode(owner, job)
        assert isinstance(event, Failed)
        assert event.kind == "gone"
    assert not pool.content.any()


def test_no_two_pools_have_one_number() -> None:
    numbers = {make_pool(SharedPools(), 64, is_shared=True).number for _ in range(50)}
    assert len(numbers) == 50
    assert min(numbers) > 0
