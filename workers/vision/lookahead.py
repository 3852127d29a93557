"""Jobs in, their materials out; perhaps in a thread, while the tower works on the batch before."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import torch

from workers.families.crew import use_threads
from workers.messages import EncodeJob
from workers.vision.materialise import Material, Materialiser
from workers.vision.payloads import JobFault

Materials = list[Material | JobFault]


class Preparation(Protocol):
    """How batches are prepared for the tower."""

    is_ahead: bool  # whether work goes on between `start` and the call of what it gave

    def start(self, jobs: Sequence[EncodeJob]) -> Callable[[], Materials]:
        """Begin with a batch; what is given waits for the jobs' materials, in order."""
        ...


class InLine:
    """Prepares a batch when it is asked for it."""

    is_ahead = False

    def __init__(self, materialiser: Materialiser) -> None:
        self._materialiser = materialiser

    def start(self, jobs: Sequence[EncodeJob]) -> Callable[[], Materials]:
        """See `Preparation`."""
        return partial(self._materialiser.materialise, jobs)


class Ahead:
    """Prepares batches one after the other in a thread, on CUDA in a stream of its own.

    The thread has one core: what it does is light, and the tower keeps the threads it was given.
    """

    is_ahead = True

    def __init__(self, materialiser: Materialiser, device: torch.device) -> None:
        """`device` is the tower's."""
        self._materialiser = materialiser
        self._stream = _stream_on(device) if device.type == "cuda" else None
        self._thread = ThreadPoolExecutor(1, "prepare", use_threads, (1,))

    def start(self, jobs: Sequence[EncodeJob]) -> Callable[[], Materials]:
        """See `Preparation`."""
        future = self._thread.submit(self._prepare, jobs)
        return lambda: self._hand_over(*future.result())

    def _prepare(self, jobs: Sequence[EncodeJob]) -> tuple[Materials, torch.cuda.Event | None]:
        if self._stream is None:
            return self._materialiser.materialise(jobs), None
        with torch.cuda.stream(self._stream):
            return self._materialiser.materialise(jobs), self._stream.record_event()

    def _hand_over(self, materials: Materials, event: torch.cuda.Event | None) -> Materials:
        """Let the caller's stream wait for this batch alone, and keep its memory until it ran."""
        if event is not None and self._stream is not None:
            current = torch.cuda.current_stream(self._stream.device)
            current.wait_event(event)
            for material in materials:
                if isinstance(material, Material) and material.features.is_cuda:
                    material.features.record_stream(current)
        return materials


def _stream_on(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # the library types it not
