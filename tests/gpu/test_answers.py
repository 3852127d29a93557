"""The same journey on a CUDA device: answers equal transformers' on the CPU, in float32."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from config.settings import DEMO_MODEL
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from tests.journeys.server import running
from tests.journeys.test_parity import NUM_REQUESTS, Oracle, ask, make_case
from workers.devices import count_gpus

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]


@pytest.mark.parametrize("name", [*ALL_MODEL_TYPES, "demo"])
def test_answers_on_cuda_equal_transformers(name: str, tmp_path: Path) -> None:
    path = DEMO_MODEL if name == "demo" else make_checkpoint(tmp_path, name)
    oracle = Oracle(path)
    cases = [make_case(number) for number in range(NUM_REQUESTS)]
    expected = [oracle.answer(case.messages) for case in cases]
    with running(model=path, workers="cuda:0:vision+language", dtype="float32") as server:
        assert [ask(server, case) for case in cases] == expected
        with ThreadPoolExecutor(16) as threads:
            assert list(threads.map(lambda case: ask(server, case), cases)) == expected


def test_preprocessing_on_the_cpu_gives_the_same_answers() -> None:
    oracle = Oracle(DEMO_MODEL)
    cases = [make_case(number) for number in range(NUM_REQUESTS)]
    with running(
        workers="cuda:0:vision+language", dtype="float32", force_cpu_image_preprocessing="1"
    ) as server:
        assert [ask(server, case) for case in cases] == [oracle.answer(c.messages) for c in cases]


def test_the_default_on_a_gpu_machine_is_the_gpu() -> None:
    with running() as server:
        assert server.metric("fovea_worker_ready") == count_gpus()
