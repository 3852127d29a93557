"""A worker process ends when, and as, it should."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import msgspec
import pytest

from tests.fakes import FAKE_COMMAND
from tests.workers.harness import start_message
from workers.link import ROOT
from workers.messages import FromWorker, Loading, Ready, StartFailed, Stop
from workers.niceness import BEHIND
from workers.wire import Splitter, pack

pytestmark = pytest.mark.slow


def spawn(
    command: tuple[str, ...], connection: socket.socket, gateway: int
) -> subprocess.Popen[bytes]:
    number = connection.fileno()
    return subprocess.Popen(
        [*command, str(number), str(gateway)], pass_fds=(number,), cwd=ROOT, stderr=subprocess.PIPE
    )


def talk(
    command: tuple[str, ...],
    model: str,
    last_word: bytes | None,
    roles: tuple[str, ...] = ("vision",),
    watch: Callable[[int], None] = lambda _: None,
) -> tuple[list[FromWorker], int]:
    """What a worker says until it is ready or gives up, and its exit status after `last_word`.

    `watch` gets the worker's process id before that.
    """
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    with ours, spawn(command, theirs, os.getpid()) as process:
        theirs.close()
        ours.sendall(pack(start_message(model, roles)))
        splitter, events = Splitter(), list[FromWorker]()
        while not events or not isinstance(events[-1], Ready | StartFailed):
            bodies = splitter.feed(ours.recv(1 << 16))
            events += [msgspec.msgpack.decode(body, type=FromWorker) for body in bodies]
        watch(process.pid)
        if last_word is None:
            ours.close()
        else:
            ours.sendall(last_word)
        process.communicate(timeout=20)
    return events, process.returncode


@pytest.mark.parametrize("last_word", [pack(Stop()), None])
def test_worker_leaves_with_status_zero(last_word: bytes | None) -> None:
    events, status = talk(FAKE_COMMAND, "fake", last_word)
    assert [type(event) for event in events] == [Loading, Loading, Ready]
    assert status == 0


@pytest.mark.skipif(sys.platform != "linux", reason="threads share their process's priority")
@pytest.mark.parametrize("roles", [("vision",), ("language",), ("vision", "language")])
def test_only_a_worker_that_has_nothing_but_vision_gives_way(roles: tuple[str, ...]) -> None:
    found: list[int] = []
    watch = partial(_add_niceness, found)
    talk(FAKE_COMMAND, "fake", pack(Stop()), roles, watch)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert found == [max(before, BEHIND) if roles == ("vision",) else before]


def _add_niceness(found: list[int], process: int) -> None:
    found.append(os.getpriority(os.PRIO_PROCESS, process))


def test_worker_that_cannot_load_says_why_and_leaves() -> None:
    events, status = talk(FAKE_COMMAND, "fail-to-load", None)
    assert events[-1] == StartFailed(message="ValueError: the weights are made of cheese")
    assert status == 1


def test_real_worker_refuses_a_folder_without_a_checkpoint() -> None:
    events, status = talk((sys.executable, "-m", "workers.entry"), "/nonexistent", None)
    assert isinstance(events[-1], StartFailed)
    assert "/nonexistent: no such folder" in events[-1].message
    assert status == 1


def test_worker_whose_gateway_died_before_it_could_ask_leaves() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, spawn(FAKE_COMMAND, theirs, gateway=1 << 30) as process:
        try:
            assert process.wait(20) == 1  # although the link stays open
        finally:
            process.kill()
