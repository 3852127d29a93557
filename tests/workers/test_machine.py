"""A container's limits bind what its process takes, whatever the machine has."""

from pathlib import Path

import pytest

from workers.machine import available_bytes, num_cores


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    file = tmp_path / "meminfo"
    file.write_text("MemTotal: 99 kB\nMemAvailable:    4096 kB\nHugePages_Total:       0\n")
    return file


@pytest.fixture
def group(tmp_path: Path) -> Path:
    (tmp_path / "memory.current").write_text("1000\n")
    (tmp_path / "memory.stat").write_text("anon 300\ninactive_file 0\nactive_file 500\n")
    return tmp_path


def test_without_a_limit_all_that_is_free_can_be_had(memory: Path, group: Path) -> None:
    assert available_bytes(memory, group / "absent") == 4 << 20
    (group / "memory.max").write_text("max\n")
    assert available_bytes(memory, group) == 4 << 20


def test_the_limit_of_the_container_counts(memory: Path, group: Path) -> None:
    (group / "memory.max").write_text("3000\n")
    assert available_bytes(memory, group) == 2000
    (group / "memory.max").write_text("900\n")
    assert available_bytes(memory, group) == 0


def test_files_that_were_read_once_do_not_count_as_used(memory: Path, group: Path) -> None:
    (group / "memory.max").write_text("3000\n")
    (group / "memory.stat").write_text("anon 300\ninactive_file 700\nactive_file 0\n")
    assert available_bytes(memory, group) == 2700


def test_a_machine_with_less_than_the_limit_counts(memory: Path, group: Path) -> None:
    (group / "memory.max").write_text(f"{1 << 40}\n")
    assert available_bytes(memory, group) == 4 << 20


def test_a_system_that_does_not_say_is_not_guessed_at(tmp_path: Path) -> None:
    assert available_bytes(tmp_path / "absent", tmp_path) is None


@pytest.mark.parametrize(
    ("quota", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1)]
)
def test_cores_are_no_more_than_the_container_may_use(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    assert num_cores(tmp_path) == 8
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert num_cores(tmp_path) == cores
