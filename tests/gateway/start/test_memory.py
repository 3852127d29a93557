"""The heap of a process that serves, after bodies and images that needed much of it."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.start import memory
from gateway.start.memory import MAX_IDLE_BYTES, give_back_when

ROOT = Path(__file__).parents[3]
SLACK_BYTES = 4 << 20
SCRIPT = """
import re
import sys
from pathlib import Path

from gateway.start.memory import give_back, share_one_heap

def held():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", status)[1])

def piece(num_mebibytes):
    return b"x" * (num_mebibytes << 20)

if "shared" in sys.argv:
    share_one_heap()
piece(31)  # as large as it may be for glibc to keep more from now on
before = held()
pieces = [piece(1) for _ in range(50)]
last = bytes(4096) if "something behind" in sys.argv else b""
del pieces
if "given back" in sys.argv:
    give_back()
print(held() - before)
"""


def grown(*ways: str) -> int:
    """Bytes that a process still holds of 50 MiB that it freed."""
    command = [sys.executable, "-c", SCRIPT, *ways]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.slow
def test_what_lies_free_at_the_end_goes_back_but_for_little() -> None:
    assert grown("shared") < MAX_IDLE_BYTES + SLACK_BYTES
    assert grown() > 2 * MAX_IDLE_BYTES  # else the test shows nothing


@pytest.mark.slow
def test_what_lies_free_before_something_goes_back_when_it_is_asked_for() -> None:
    assert grown("shared", "something behind", "given back") < MAX_IDLE_BYTES + SLACK_BYTES
    assert grown("shared", "something behind") > 2 * MAX_IDLE_BYTES


def test_memory_is_given_back_while_nothing_runs_and_only_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks = iter([True, False, False, True])
    given: list[str] = []
    monkeypatch.setattr(memory, "_LOOK_SECONDS", 0)
    monkeypatch.setattr(memory, "give_back", lambda: given.append("given"))
    with pytest.raises(RuntimeError):  # there are no more looks
        asyncio.run(give_back_when(lambda: next(looks)))
    assert len(given) == 2
