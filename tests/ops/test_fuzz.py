"""The fuzzer finds what it is to find, makes its inputs again, and a short run of it is clean."""

import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ops.fuzz.__main__ import judge_memory
from ops.fuzz.blocks import form_of, png_chunk, shake
from ops.fuzz.bodies import check_error
from ops.fuzz.files import make_files
from ops.fuzz.mutate import mutate
from ops.fuzz.run import Memory
from ops.fuzz.target import Wrong
from ops.fuzz.uris import read
from tests.ops.falling import NAME

ROOT = Path(__file__).parents[2]
RUN_FALLING = f"""
import json
from ops.fuzz.run import Report, Task, run_apart

if __name__ == "__main__":
    report = Report()
    for part in run_apart(Task({NAME!r}, seed=1, first=0, num_inputs=10)):
        report.add(part)
    told = {{fault.index: fault.what for fault in report.faults}}
    print(json.dumps([report.outcomes["well"], told]))
"""


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
def test_an_input_that_ends_the_process_is_known_and_the_rest_is_run() -> None:
    # In a process of its own, for those that run apart leave one that tracks what they share.
    done = python("-c", RUN_FALLING)
    num_well, told = json.loads(done.stdout)
    assert told == {
        "3": "the process ended by -11",
        "5": "five is wrong",
        "6": "KeyError: 'six'",
        "8": "PanicException: eight",
    }
    assert num_well >= 3  # what a process had not told when it died is lost


def samples(*private: float, most: float = 100.0) -> list[Memory]:
    return [Memory(1000 * place, each, most) for place, each in enumerate(private)]


def test_memory_that_grows_without_end_or_all_at_once_is_told() -> None:
    flat = samples(50, 90, 91, 90, 91, 90, 91)
    assert judge_memory(flat) == []
    assert judge_memory(samples(50, 60, 70, 80, 90, 100, 110)) == ["memory grew by 40.0 MiB"]
    assert judge_memory([*flat, *samples(50, most=900)]) != []


def test_files_that_are_taken_apart_come_together_as_they_were() -> None:
    for data in make_files():
        form = form_of(data)
        if form is not None:
            blocks = form.split(data)
            assert len(blocks) >= 1
            assert form.split(form.join(blocks)) == blocks


def test_damage_is_the_same_for_the_same_chance_and_mostly_there() -> None:
    files = make_files()
    assert files == make_files()
    for way in (mutate, shake):
        made = [way(data, Random(place)) for place, data in enumerate(files)]
        assert made == [way(data, Random(place)) for place, data in enumerate(files)]
        assert sum(each != data for each, data in zip(made, files, strict=True)) > len(files) / 2


def test_blocks_of_a_png_bear_the_checksum_of_what_they_hold() -> None:
    (first, *_) = [data for data in make_files() if data.startswith(b"\x89PNG")]
    form = form_of(first)
    assert form is not None
    assert first[8:].startswith(png_chunk(form.split(first)[0]))


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("x" * 101, "repeats"),
        ("a queue at 0x7f31aa02", "tells"),
        ("no such file: /usr/lib/python3/thing.py", "tells"),
        ("y" * 700, "700 characters"),
    ],
)
def test_errors_that_tell_too_much_are_wrong(message: str, what: str) -> None:
    error = {"message": message, "type": "t", "code": "c", "param": None, "retryable": False}
    with pytest.raises(Wrong, match=what):
        check_error({"error": error}, b'{"model": "' + 200 * b"x" + b'"}')


def test_errors_that_tell_what_they_should_are_right() -> None:
    error = {"message": "it is 7", "type": "t", "code": "c", "param": "n", "retryable": False}
    assert check_error({"error": error}, b"{}") == "c"
    with pytest.raises(Wrong, match="lacks"):
        check_error({"error": {"message": "why"}}, b"{}")


def test_the_second_reading_of_data_uris_is_strict() -> None:
    assert read("data:image/png;base64,AAE%3D") == b"\0\1"
    for bad in ("data:image/png;base64,AAE===", "data:image/png,AA", "data:text/html;base64,AAAA"):
        assert read(bad) is None


@pytest.mark.slow
def test_a_short_run_of_all_targets_is_clean(tmp_path: Path) -> None:
    wishes = ["--share", "0.001", "--seed", "3", "--keep", str(tmp_path)]
    done = python("-m", "ops.fuzz", *wishes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^\w+: \d+ inputs in .* 0 faults$", done.stdout, re.M)) == 7
