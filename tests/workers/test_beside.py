"""A stage in a thread: the loop goes on meanwhile, and hears of everything once."""

import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.workers.harness import prompt_job
from workers.beside import Beside
from workers.messages import Finished, FromWorker, GenerateJob
from workers.niceness import BEHIND

SECONDS = 5.0


class Gated:
    """A stage whose steps wait for a gate; a job of the name `bad` makes its step raise."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.jobs: list[str] = []
        self.threads: set[int] = set()
        self.niceness: int | None = None

    @property
    def busy(self) -> bool:
        return bool(self.jobs)

    def put(self, job: GenerateJob) -> None:
        self.threads.add(threading.get_ident())
        self.jobs.append(job.job_id)

    def abort(self, job_id: str) -> None:
        self.threads.add(threading.get_ident())
        self.jobs.remove(job_id)

    def step(self) -> list[FromWorker]:
        self.threads.add(threading.get_ident())
        self.niceness = elsewhere(_niceness)
        if not self.jobs:
            return []
        assert self.gate.wait(SECONDS)
        name = self.jobs.pop(0)
        if name == "bad":
            raise RuntimeError("bad")
        return [Finished(job_id=name, reason="stop", num_prompt_tokens=1, num_completion_tokens=1)]


def elsewhere(function: Callable[[], int]) -> int:
    """What a thread finds that is started here."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.fixture
def stage() -> Gated:
    return Gated()


@pytest.fixture
def rung() -> threading.Event:
    return threading.Event()


@pytest.fixture
def beside(stage: Gated, rung: threading.Event) -> Beside[GenerateJob]:
    return Beside(stage, rung.set)


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.001)


def take(beside: Beside[GenerateJob], count: int) -> list[str]:
    """The jobs that have ended, once there are so many."""
    names: list[str] = []
    limit = time.monotonic() + SECONDS
    while len(names) < count:
        assert time.monotonic() < limit
        names += [event.job_id for event in beside.step() if isinstance(event, Finished)]
    return names


def test_nothing_waits_for_a_long_step(
    stage: Gated, beside: Beside[GenerateJob], rung: threading.Event
) -> None:
    beside.put(prompt_job("long", [1]))
    until(lambda: beside.turn.seconds > 0.01)
    assert not beside.busy
    assert beside.step() == []
    beside.put(prompt_job("next", [1]))
    assert not rung.is_set()
    stage.gate.set()
    assert take(beside, 2) == ["long", "next"]
    assert rung.is_set()
    until(lambda: beside.turn.seconds == 0)


def test_one_thread_alone_touches_the_stage(stage: Gated, beside: Beside[GenerateJob]) -> None:
    beside.put(prompt_job("first", [1]))
    until(lambda: bool(stage.jobs))
    beside.put(prompt_job("second", [1]))
    beside.put(prompt_job("third", [1]))
    beside.abort("second")
    stage.gate.set()
    assert take(beside, 2) == ["first", "third"]
    assert len(stage.threads) == 1
    assert threading.get_ident() not in stage.threads


def test_a_fault_is_raised_in_the_loop_and_the_rest_goes_on(
    stage: Gated, beside: Beside[GenerateJob]
) -> None:
    stage.gate.set()
    beside.put(prompt_job("bad", [1]))
    until(lambda: beside.busy)
    with pytest.raises(RuntimeError, match="bad"):
        beside.step()
    beside.put(prompt_job("good", [1]))
    assert take(beside, 1) == ["good"]


@pytest.mark.skipif(sys.platform != "linux", reason="priorities belong to processes")
def test_it_gives_way_with_all_threads_it_starts_and_the_loop_does_not(
    stage: Gated, beside: Beside[GenerateJob]
) -> None:
    before = _niceness()
    stage.gate.set()
    beside.put(prompt_job("one", [1]))
    assert take(beside, 1) == ["one"]
    assert stage.niceness == max(before, BEHIND)
    assert _niceness() == before
