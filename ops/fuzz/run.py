"""Runs a target in a process of its own, so that an input which kills or hangs it is known by name.

Each input is made from the seed, the target's name and its own number, and so can be made again.
"""

import logging
import multiprocessing
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random
from typing import Any

from ops.fuzz.target import Target, Wrong
from ops.fuzz.targets import open_target

REPORT_INPUTS = 500  # between two reports, each with a sample of memory
SILENT_SECONDS = 60.0  # on one input, after which the process is taken to hang
_STATUS = Path("/proc/self/status")
_PRIVATE = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)
_MOST = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Task:
    """Inputs `first` to `first + num_inputs - 1` of a target."""

    target: str
    seed: int
    first: int
    num_inputs: int


@dataclass(frozen=True, slots=True)
class Fault:
    """An input that broke a promise."""

    index: int
    what: str


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process holds after so many inputs, in mebibytes."""

    index: int
    private: float
    most: float  # that it ever held, shared and file pages included


@dataclass(slots=True)
class Report:
    """What came of a run, or of a part of one. Owned by whoever adds to it."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[Fault] = field(default_factory=list)
    memory: list[Memory] = field(default_factory=list)
    slowest_index: int = -1
    slowest_seconds: float = 0.0
    num_inputs: int = 0

    def add(self, other: "Report") -> None:
        """Add what came later."""
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.memory += other.memory
        self.num_inputs += other.num_inputs
        if other.slowest_seconds > self.slowest_seconds:
            self.slowest_index = other.slowest_index
            self.slowest_seconds = other.slowest_seconds


def input_of(target: Target, name: str, seed: int, index: int) -> bytes:
    """One input, always the same."""
    return target.make(Random(f"{seed}:{name}:{index}"))


def run_here(task: Task, target: Target) -> Iterator[tuple[int, Report]]:
    """Run in this process; the index of each input before it is judged, and what is new."""
    report = Report(memory=[_memory(task.first)])
    for index in range(task.first, task.first + task.num_inputs):
        yield index, Report()
        _judge(input_of(target, task.target, task.seed, index), target, index, report)
        if report.num_inputs == REPORT_INPUTS:
            report.memory.append(_memory(index + 1))
            yield index, report
            report = Report()
    report.memory.append(_memory(task.first + task.num_inputs))
    yield task.first + task.num_inputs, report


def _judge(data: bytes, target: Target, index: int, report: Report) -> None:
    begun = time.perf_counter()
    try:
        report.outcomes[target.judge(data)] += 1
    except Wrong as wrong:
        report.faults.append(Fault(index, str(wrong)))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - what panics of libraries are, is no Exception
        report.faults.append(Fault(index, f"{type(error).__name__}: {error}"[:300]))
    seconds = time.perf_counter() - begun
    report.num_inputs += 1
    if seconds > report.slowest_seconds:
        report.slowest_index, report.slowest_seconds = index, seconds


def _memory(index: int) -> Memory:
    status = _STATUS.read_text()
    private, most = _PRIVATE.search(status), _MOST.search(status)
    assert private is not None
    assert most is not None
    return Memory(index, int(private[1]) / 1024, int(most[1]) / 1024)


def run_apart(task: Task) -> Iterator[Report]:
    """Run in a process of its own, and in another one from behind an input that ends it."""
    first, end = task.first, task.first + task.num_inputs
    while first < end:
        part = Task(task.target, task.seed, first, end - first)
        yield from (life := _Life(part)).reports()
        if not life.fault:
            return
        yield Report(faults=[life.fault], num_inputs=1)
        first = life.fault.index + 1


class _Life:
    """One process that runs a task. Owned by `run_apart`."""

    def __init__(self, task: Task) -> None:
        self.fault: Fault | None = None  # the input that it died of
        context = multiprocessing.get_context("spawn")
        self._place: Synchronized[int] = context.Value("q", task.first)
        self._reports, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_live, args=(task, self._place, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def reports(self) -> Iterator[Report]:
        """What the process tells, until it has done all or is gone."""
        seen, since = -1, time.monotonic()
        while True:
            try:
                if self._reports.poll(1.0):
                    yield self._reports.recv()
            except EOFError:
                break
            place = self._place.value
            if place != seen:
                seen, since = place, time.monotonic()
            elif time.monotonic() - since > SILENT_SECONDS:
                self._process.kill()
        self._process.join()
        if self._process.exitcode:
            self.fault = Fault(self._place.value, f"the process ended by {self._process.exitcode}")


def _live(task: Task, place: Any, reports: "Connection[Report, None]") -> None:
    """Main of the process."""
    target = open_target(task.target)
    logging.disable(logging.CRITICAL)  # what is said of bad inputs, and that is a lot
    for index, report in run_here(task, target):
        place.value = index
        if report.num_inputs or report.memory:
            reports.send(report)
    target.close()
