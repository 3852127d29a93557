"""Padded steps that are recorded once and replayed, on a recorder that every machine has."""

from collections.abc import Callable, Iterator

import pytest
from torch import Tensor

from tests.workers.language.engines import text_request
from tests.workers.language.models import Model, make_request
from tests.workers.language.rows import TOLERANCE, distance, packed, single
from workers.language import graphs
from workers.language.graphs import Recording
from workers.language.inputs import StepTensors


class Repeater:
    """Stands in for a device: computes anew, on the tensors that it was given once."""

    def __init__(self) -> None:
        self.num_recorded = 0
        self.num_replayed = 0

    def record(self, compute: Callable[[], Tensor]) -> Recording:
        self.num_recorded += 1
        output = compute().clone()

        def replay() -> None:
            self.num_replayed += 1
            output.copy_(compute())

        return Recording(replay, output)


@pytest.mark.slow
@pytest.mark.parametrize("num_blocks", [800, 100])
def test_replayed_rows_equal_the_library(model: Model, num_blocks: int) -> None:
    requests = [make_request(model, seed, seed % 5) for seed in range(100, 106)]
    recorder = Repeater()
    found, _ = packed(model, requests, num_blocks, recorder=recorder)
    assert distance(found, single(model, requests)) < TOLERANCE
    assert recorder.num_replayed > recorder.num_recorded > 0


def test_steps_of_a_size_are_recorded_once(deep_model: Model) -> None:
    recorder = Repeater()
    packed(deep_model, [text_request(9, 1)], recorder=recorder)
    assert (recorder.num_recorded, recorder.num_replayed) == (1, 11)
    packed(deep_model, [text_request(5 + index, 1) for index in range(5)], recorder=recorder)
    assert (recorder.num_recorded, recorder.num_replayed) == (2, 22)


def test_rows_that_fill_a_step_up_touch_nothing_of_others(deep_model: Model) -> None:
    requests = [text_request(7 + index, 1, first=index) for index in range(5)]
    plain, _ = packed(deep_model, requests)
    filled, _ = packed(deep_model, requests, recorder=Repeater())
    assert distance(filled, plain) < TOLERANCE


def test_control_numbers_that_are_not_copied_change_the_rows(
    deep_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: StepTensors) -> Iterator[Tensor]:
        yield from ()

    requests = [text_request(9, 1)]
    expected = single(deep_model, requests)
    recorder = Repeater()
    monkeypatch.setattr(graphs, "_copy", lambda tensors: tensors)
    monkeypatch.setattr(graphs, "_inputs", nothing)
    assert distance(packed(deep_model, requests, recorder=recorder)[0], expected) > 100 * TOLERANCE
