"""On a CUDA device: every way of attention against the plain reference, and recorded steps."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.checkpoints import make_checkpoint
from tests.journeys.server import running
from tests.journeys.test_parity import NUM_REQUESTS, Oracle, ask, make_case
from workers.devices import count_gpus
from workers.families.decoder import LayerKv
from workers.language.attention import KvCache, reference_attention
from workers.language.graphs import CudaRecorder
from workers.language.inputs import AttentionPath, build_attention
from workers.language.scheduler import Slice
from workers.language.sequence import Sequence
from workers.sampling import Sampling

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(count_gpus() == 0, reason="no CUDA device"),
]
DEVICE = "cuda:0"
HEADS, QUERY_HEADS, WIDTH, SIZE, SCALE = 2, 6, 64, 16, 0.125
PARTS = [(1, 1), (300, 1), (2000, 1), (0, 70), (40, 33), (1000, 129)]  # start, length
SAMPLING = Sampling(temperature=0, top_p=1, top_k=0, seed=0, max_tokens=1, stop_token_ids=())


def flashinfer_path() -> AttentionPath:
    if importlib.util.find_spec("flashinfer") is None:
        pytest.skip("flashinfer-python is not installed")
    from types import SimpleNamespace
    from typing import cast

    from workers.families.decoder import Decoder
    from workers.language.paths import FlashInferPath

    decoder = SimpleNamespace(device=torch.device(DEVICE))
    return FlashInferPath(cast("Decoder", decoder), importlib.import_module("flashinfer"))


@pytest.mark.parametrize("name", ["torch", "flashinfer"])
def test_attention_on_cuda_equals_the_reference(name: str) -> None:
    path = build_attention if name == "torch" else flashinfer_path()
    torch.manual_seed(1)
    num_blocks = sum(-(-(start + length) // SIZE) for start, length in PARTS)
    free = torch.randperm(num_blocks).tolist()
    cache = KvCache(
        [LayerKv(HEADS, WIDTH, WIDTH)], num_blocks, SIZE, torch.bfloat16, torch.device(DEVICE)
    )
    slices: list[Slice] = []
    rows: list[tuple[Tensor, Tensor, Tensor]] = []
    slots: list[int] = []
    for number, (start, length) in enumerate(PARTS):
        end = start + length
        sequence = Sequence(str(number), [1] * end, end, SAMPLING, end + 1, 1e9, start)
        sequence.block_ids = [free.pop() for _ in range(-(-end // SIZE))]
        slices.append(Slice(sequence, start, length))
        places = [sequence.block_ids[at // SIZE] * SIZE + at % SIZE for at in range(end)]
        query, key, value = (
            torch.randn(heads, count, WIDTH, device=DEVICE).bfloat16()
            for heads, count in ((QUERY_HEADS, length), (HEADS, end), (HEADS, end))
        )
        before = torch.tensor(places[:start], device=DEVICE, dtype=torch.int64)
        cache.write(0, before, key[:, :start], value[:, :start])
        slots += places[start:]
        rows.append((query, key, value))
    attention = path(cache, torch.tensor(slots, device=DEVICE), slices, torch.bfloat16)
    found = attention.attend(
        0,
        torch.cat([query for query, _, _ in rows], dim=1),
        torch.cat([key[:, -query.shape[1] :] for query, key, _ in rows], dim=1),
        torch.cat([value[:, -query.shape[1] :] for query, _, value in rows], dim=1),
        SCALE,
    )
    expected = [
        reference_attention(query.float(), key.float(), value.float(), start, SCALE)
        for (query, key, value), (start, _) in zip(rows, PARTS, strict=True)
    ]
    torch.testing.assert_close(found.float(), torch.cat(expected), rtol=2e-2, atol=1e-2)


def test_a_recording_is_replayed_on_new_numbers() -> None:
    number = torch.ones(3, device=DEVICE)
    recording = CudaRecorder(torch.device(DEVICE)).record(lambda: number * 2)
    number.fill_(4)
    recording.replay()
    assert recording.output.tolist() == [8, 8, 8]


@pytest.mark.parametrize("name", ["qwen2_5_vl", "qwen3_vl"])
def test_recorded_steps_answer_like_transformers(name: str, tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, name)
    oracle = Oracle(path)
    cases = [make_case(number) for number in range(NUM_REQUESTS)]
    with running(
        model=path, workers=f"{DEVICE}:vision+language", dtype="float32", cuda_graphs="1"
    ) as server:
        found = [ask(server, case) for case in cases]
    assert found == [oracle.answer(case.messages) for case in cases]
