"""Embeddings that stay on a CUDA device: the driver's calls, and the same answers as without."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.checkpoints import make_checkpoint
from tests.journeys.server import Server, running
from tests.journeys.test_parity import Oracle, ask, make_case
from tests.journeys.test_transport import COLOURS, Pair, embedding_bytes
from tests.journeys.test_transport import ask as ask_colour
from workers.cuda_pool import CudaPools
from workers.devices import can_reach, count_gpus
from workers.features import PoolError, make_pool
from workers.messages import Region

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]
CUDA = torch.device("cuda:0")
TWO_PROCESSES = "cuda:0:vision,cuda:0:language"
SHARES: dict[str, str | int | Path] = {
    "feature_pool_bytes": 64 << 20,
    "kv_cache_tokens": 8192,
    "dtype": "float32",
}
# What another process does: map the pool, copy from it, and print the sum.
READER = """
import sys, torch
from workers.cuda_pool import CudaPools
device = torch.device("cuda:0")
mapped = CudaPools(device).open(bytes.fromhex(sys.argv[1]), int(sys.argv[2]))
target = torch.zeros(1000, dtype=torch.float32, device=device)
mapped.copy(int(sys.argv[3]), target)
torch.cuda.current_stream(device).synchronize()
mapped.close()
print(target.double().sum().item())
"""


def test_another_process_reads_what_this_one_wrote() -> None:
    pool = make_pool(CudaPools(CUDA), 8 << 20, is_shared=True)
    region = Region(0, 4096, 4000, pool.number)
    values = torch.arange(1000, dtype=torch.float32, device=CUDA)
    pool.view(region).view(torch.float32).copy_(values)
    torch.cuda.synchronize(CUDA)
    arguments = [pool.handle.hex(), str(8 << 20), str(region.offset)]
    done = subprocess.run(
        [sys.executable, "-c", READER, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == 499_500


def test_the_drivers_refusals_are_told_in_its_words() -> None:
    pools = CudaPools(CUDA)
    with pytest.raises(PoolError, match=r"cuMemAlloc_v2 on cuda:0 says: .*memory"):
        pools.make(1 << 50)
    with pytest.raises(PoolError, match="cuIpcOpenMemHandle_v2 on cuda:0 says"):
        pools.open(bytes(64), 1 << 20)
    assert torch.ones(3, device=CUDA).sum() == 3  # and the device goes on


def test_devices_reach_themselves() -> None:
    assert can_reach(0, 0)


@pytest.mark.parametrize(
    ("workers", "way"),
    [(TWO_PROCESSES, "cuda_ipc"), ("cuda:0:vision+language", "same_process")],
)
@pytest.mark.parametrize("name", ["qwen3_vl", "kimi_k25"])
def test_answers_are_transformers_by_every_transport(
    workers: str, way: str, name: str, tmp_path: Path
) -> None:
    path = make_checkpoint(tmp_path, name)
    oracle = Oracle(path)
    cases = [make_case(number) for number in range(1, 15)]
    expected = [oracle.answer(case.messages) for case in cases]
    for transport, used in (("cpu", "cpu"), ("auto", way)):
        with running(model=path, workers=workers, feature_transport=transport, **SHARES) as server:
            for _ in range(2):  # the second time from the cache
                assert [ask(server, case) for case in cases] == expected
            assert set(embedding_bytes(server)) == {used}


def test_an_owner_or_an_engine_that_is_killed_costs_no_other_process() -> None:
    with running(workers=TWO_PROCESSES, feature_transport="cuda_ipc", **SHARES) as server:
        pids = sorted(server.workers())
        pair = Pair(server, dict(zip(("worker-0", "worker-1"), pids, strict=True)))
        for worker in ("worker-0", "worker-1", "worker-0"):
            check_colours(server)
            other = {"worker-0": "worker-1", "worker-1": "worker-0"}[worker]
            before = pair.pids[other]
            pair.kill(worker)
            assert pair.pids[other] == before
        check_colours(server)


def check_colours(server: Server) -> None:
    for number, colour in enumerate(COLOURS):
        assert ask_colour(server, colour, (150 + number, 131 - number)) == colour


def test_a_pool_that_does_not_fit_the_device_stops_the_start() -> None:
    command = [sys.executable, "-m", "gateway"]
    settings = {**os.environ, "FOVEA_FEATURE_POOL_BYTES": str(1 << 50), "FOVEA_PORT": "0"}
    done = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "FOVEA_FEATURE_POOL_BYTES" in done.stdout + done.stderr
