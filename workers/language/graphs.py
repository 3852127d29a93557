"""Steps that only decode, recorded once for each size and then replayed with new numbers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

from workers.language.attention import PackedAttention, SingleRows
from workers.language.inputs import DecodeSize, StepTensors

NUM_WARM_UPS = 2  # libraries set themselves up in the first passes, which must not be recorded


@dataclass(frozen=True, slots=True)
class Recording:
    """Work of a device that can be done again on the same memory."""

    replay: Callable[[], None]
    output: Tensor  # written anew by every replay


class Recorder(Protocol):
    """Records work of one device."""

    def record(self, compute: Callable[[], Tensor]) -> Recording:
        """Do what `compute` does, maybe several times, and keep it; it must ask nothing back."""
        ...


class CudaRecorder:
    """CUDA graphs of one device, which share their memory: never two are replayed at once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, compute: Callable[[], Tensor]) -> Recording:
        """See `Recorder`."""
        current = torch.cuda.current_stream(self._device)
        aside = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        aside.wait_stream(current)
        with torch.cuda.stream(aside):
            for _ in range(NUM_WARM_UPS):
                compute()
        current.wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        # Thread local: the owner of images may use the device at the same time.
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            output = compute()
        return Recording(graph.replay, output)


class DecodeGraphs:
    """Replays padded steps; see `InputBuilder`. Owned by the runner.

    Of many small operations each costs more to start than to do: a graph starts them at once.
    """

    def __init__(self, compute: Callable[[StepTensors], Tensor], recorder: Recorder) -> None:
        """`compute` gives float32 [rows, vocab] for the `last_rows` of a step."""
        self._compute = compute
        self._recorder = recorder
        self._recorded: dict[DecodeSize, tuple[StepTensors, Recording]] = {}

    def run(self, tensors: StepTensors) -> Tensor:
        """Logits of a padded step, float32 [chosen, vocab]; the next call overwrites them."""
        assert tensors.size is not None, "only padded steps have a size"
        if tensors.size not in self._recorded:
            self._recorded[tensors.size] = self._record(tensors, tensors.size)
        kept, recording = self._recorded[tensors.size]
        for old, new in zip(_inputs(kept), _inputs(tensors), strict=True):
            old.copy_(new, non_blocking=True)
        recording.replay()
        return recording.output[: len(tensors.choosers)]

    def _record(self, tensors: StepTensors, size: DecodeSize) -> tuple[StepTensors, Recording]:
        all_rows = torch.arange(size.num_rows, device=tensors.ids.device)
        kept = replace(_copy(tensors), last_rows=all_rows, choosers=())
        return kept, self._recorder.record(lambda: self._compute(kept))


def _inputs(tensors: StepTensors) -> Iterator[Tensor]:
    """All that differs from step to step."""
    attention, part = _padded(tensors)
    assert part.mask is not None, "padded steps are masked"
    yield from (tensors.ids, tensors.positions, attention.slots, part.table, part.mask)


def _padded(tensors: StepTensors) -> tuple[PackedAttention, SingleRows]:
    assert isinstance(tensors.attention, PackedAttention), "padded steps are for torch's attention"
    (part,) = tensors.attention.singles
    return tensors.attention, part


def _copy(tensors: StepTensors) -> StepTensors:
    ids, positions, slots, table, mask = (each.clone() for each in _inputs(tensors))
    attention, part = _padded(tensors)
    singles = (replace(part, table=table, mask=mask),)
    attention = replace(attention, slots=slots, singles=singles)
    return replace(tensors, ids=ids, positions=positions, attention=attention)
