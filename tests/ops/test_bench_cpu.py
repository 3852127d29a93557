"""Whose CPU time it was: ours with all children, or somebody else's."""

import os

import pytest

from ops.bench import cpu
from ops.bench.cpu import Process, Reading, family, foreign_cores, used_seconds

needs_proc = pytest.mark.skipif(not cpu.can_read(), reason="this system has no /proc/stat")

BEFORE = Reading(
    taken_at=10.0,
    busy_seconds=100.0,
    processes={
        1: Process("init", 0, 5.0),
        20: Process("server", 1, 7.0),
        21: Process("worker", 20, 30.0),
        50: Process("editor", 1, 2.0),
    },
)
AFTER = Reading(
    taken_at=12.0,
    busy_seconds=103.5,
    processes={
        1: Process("init", 0, 5.0),
        20: Process("server", 1, 7.5),
        21: Process("worker", 20, 31.5),
        22: Process("helper", 21, 0.5),
        50: Process("editor", 1, 3.0),
    },
)


def test_a_family_is_everything_below_its_roots() -> None:
    assert family(AFTER, [20]) == {20, 21, 22}
    assert family(AFTER, [22, 50]) == {22, 50}


def test_used_seconds_are_differences_and_new_processes_start_at_zero() -> None:
    used = used_seconds(BEFORE, AFTER, [20])
    assert used == {"server (20)": 0.5, "worker (21)": 1.5, "helper (22)": 0.5}


def test_foreign_cores_are_what_is_left_of_the_machine() -> None:
    assert foreign_cores(BEFORE, AFTER, [20]) == pytest.approx(0.5)
    assert foreign_cores(BEFORE, AFTER, [20, 50]) == 0.0


@needs_proc
def test_our_own_work_is_seen_as_ours() -> None:
    before = cpu.read()
    while not (used := used_seconds(before, cpu.read(), [os.getpid()])):
        sum(range(50_000))
    assert any(str(os.getpid()) in name for name in used)
