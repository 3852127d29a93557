"""The loop survives whatever comes in or goes wrong, and every job ends."""

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
import pytest

from tests.fakes import FakeEncoder, FakeLanguage
from tests.workers.harness import encode_job, prompt_job
from tests.workers.peer import Peer
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Region,
    Stats,
    Stop,
)
from workers.wire import pack
from workers.worker import MAX_FAULTS_IN_A_ROW

RAISE, FAIL, SLOW = 63, 91, 31


class Broken(FakeLanguage):
    """A stage that always has something to do and always raises."""

    def __init__(self) -> None:
        pass

    @property
    def busy(self) -> bool:
        return True

    def put(self, job: GenerateJob) -> None:
        pass

    def abort(self, job_id: str) -> None:
        pass

    def step(self) -> list[FromWorker]:
        raise RuntimeError("broken for good")


class Reluctant(FakeLanguage):
    """Raises when it is given a job, and counts how often it is asked whether it is busy."""

    num_questions = 0

    @property
    def busy(self) -> bool:
        self.num_questions += 1
        return super().busy

    def put(self, job: GenerateJob) -> None:
        if job.job_id == "disliked":
            raise ValueError("not this one")
        super().put(job)


@pytest.fixture
def peer() -> Iterator[Peer]:
    peer = Peer()
    with peer.connection, peer.other_end:
        yield peer
        peer.connection.close()
        assert peer.has_ended()


def image(job_id: str) -> EncodeJob:
    return encode_job(job_id, Region(0, 0, 24), Region(0, 64, 64))


def start_both(peer: Peer) -> None:
    peer.start(FakeEncoder(peer.arenas), FakeLanguage(peer.arenas))


@pytest.mark.slow
def test_both_roles_share_one_loop(peer: Peer) -> None:
    start_both(peer)
    peer.send(pack(prompt_job("long", [SLOW], max_tokens=10)), pack(image("a")))
    assert isinstance(peer.last("a"), Encoded)  # not held up until the answer has ended
    assert isinstance(peer.last("long"), Finished)


def test_message_that_is_not_understood_ends_its_job_and_nothing_else(peer: Peer) -> None:
    start_both(peer)
    wrong = msgspec.msgpack.encode({"type": "GenerateJob", "job_id": "wrong", "token_ids": 5})
    too_deep = b"\x81\xa1a" * 2000 + b"\xc0"  # objects within objects
    for body in (b"\xc1\xc1", b"", too_deep, wrong):
        peer.send(len(body).to_bytes(4, "big"), body)
    peer.send(pack(prompt_job("good", [4])))
    end = peer.next()
    assert isinstance(end, Failed)
    assert (end.job_id, end.kind) == ("wrong", "internal")
    assert isinstance(peer.last("good"), Finished)


@pytest.mark.parametrize("changes", [{"grid": None}, {"sharpness": 1}])
def test_image_with_a_wrong_plan_ends_before_it_joins_a_batch(
    peer: Peer, changes: dict[str, object]
) -> None:
    start_both(peer)
    wrong = msgspec.to_builtins(image("wrong"))
    wrong["plan"] |= changes
    body = msgspec.msgpack.encode(wrong)
    peer.send(pack(image("before")), len(body).to_bytes(4, "big"), body, pack(image("after")))
    kinds: dict[str, type] = {}
    while len(kinds) < 3:
        event = peer.next()
        if isinstance(event, Encoded | Failed):
            kinds[event.job_id] = type(event)
    assert kinds == {"before": Encoded, "wrong": Failed, "after": Encoded}


def test_step_that_raises_fails_the_jobs_of_its_stage_only(peer: Peer) -> None:
    start_both(peer)
    peer.arena.view(Region(0, 0, 3))[:] = bytes((13, 2, 0))  # this image fails by itself
    peer.send(
        pack(prompt_job("neighbour", [4])), pack(prompt_job("bad", [RAISE])), pack(image("a"))
    )
    ends = dict.fromkeys(("neighbour", "bad", "a"))
    while None in ends.values():
        event = peer.next()
        if isinstance(event, Failed):
            assert ends[event.job_id] is None
            ends[event.job_id] = event.message
    assert ends["neighbour"] == ends["bad"] == "the worker failed while doing this job"
    assert ends["a"] == "this image is too red"
    peer.send(pack(prompt_job("next", [4])))
    event = peer.next()
    while not isinstance(event, Finished):
        assert not isinstance(event, Failed)
        event = peer.next()
    assert event.job_id == "next"


def test_stage_that_is_broken_for_good_ends_the_worker(peer: Peer) -> None:
    peer.start(None, Broken())
    assert peer.has_ended()
    assert str(peer.error) == "broken for good"


def test_lost_device_ends_the_worker_at_once(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    class AcceleratorError(RuntimeError):
        pass

    class Lost(Broken):
        num_steps = 0

        def step(self) -> list[FromWorker]:
            self.num_steps += 1
            raise AcceleratorError("an illegal memory access was encountered")

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(AcceleratorError=AcceleratorError))
    stage = Lost()
    peer.start(None, stage)
    assert peer.has_ended()
    assert isinstance(peer.error, AcceleratorError)
    assert stage.num_steps == 1 < MAX_FAULTS_IN_A_ROW


def test_job_that_its_stage_cannot_take_fails_alone(peer: Peer) -> None:
    peer.start(None, Reluctant(peer.arenas))
    peer.send(pack(prompt_job("disliked", [4])), pack(prompt_job("good", [4])))
    assert isinstance(peer.last("disliked"), Failed)
    assert isinstance(peer.last("good"), Finished)


def test_job_of_a_role_that_the_worker_lacks_fails(peer: Peer) -> None:
    peer.start(None, FakeLanguage(peer.arenas))
    peer.send(pack(image("a")))
    end = peer.last("a")
    assert isinstance(end, Failed)
    assert "role" in end.message


def test_abort_ends_the_job_and_may_come_twice_or_for_nothing(peer: Peer) -> None:
    start_both(peer)
    abort = pack(Abort(job_id="long"))
    peer.send(pack(Abort(job_id="unknown")), pack(prompt_job("long", [SLOW], max_tokens=999)))
    peer.send(abort, abort)
    end = peer.last("long")
    assert isinstance(end, Finished)
    assert end.reason == "abort"
    peer.send(abort, pack(prompt_job("next", [4])))
    assert isinstance(peer.last("next"), Finished)


def test_load_is_told_when_the_worker_falls_idle(peer: Peer) -> None:
    start_both(peer)
    peer.send(pack(prompt_job("a", [SLOW], max_tokens=3)))
    events = [peer.next()]
    while not (isinstance(events[-1], Stats) and events[-1].num_running == 0):
        events.append(peer.next())
    told = [event for event in events if isinstance(event, Stats)]
    assert [load.num_running for load in told] == [1, 0]


def test_load_is_told_each_time_the_worker_gets_busy(peer: Peer) -> None:
    """Else one that is often idle for a moment would look as if it were so all the time."""
    start_both(peer)
    for name in ("a", "b", "c"):  # all within less time than lies between two of a busy worker
        peer.send(pack(prompt_job(name, [SLOW], max_tokens=3)))
        events = [peer.next()]
        while not (isinstance(events[-1], Stats) and events[-1].num_running == 0):
            events.append(peer.next())
        told = [event.num_running for event in events if isinstance(event, Stats)]
        assert told == [1, 0]


def test_images_that_wait_are_told_before_the_batch_that_may_take_long(peer: Peer) -> None:
    start_both(peer)
    peer.send(pack(image("one")), pack(image("two")))
    first = peer.next()
    assert isinstance(first, Stats)
    assert first.num_images_waiting > 0


def test_idle_worker_sleeps(peer: Peer) -> None:
    stage = Reluctant(peer.arenas)
    peer.start(None, stage)
    peer.send(pack(prompt_job("a", [4])))
    peer.last("a")
    time.sleep(0.05)  # to fall idle
    before = stage.num_questions
    time.sleep(0.1)
    assert stage.num_questions == before


@pytest.mark.parametrize("is_busy", [False, True])
def test_stop_ends_the_loop(peer: Peer, is_busy: bool) -> None:
    start_both(peer)
    if is_busy:
        peer.send(pack(prompt_job("long", [SLOW], max_tokens=999)))
    peer.send(pack(Stop()))
    assert peer.has_ended()
    assert peer.error is None


@pytest.mark.parametrize("is_busy", [False, True])
def test_end_of_file_ends_the_loop(peer: Peer, is_busy: bool) -> None:
    start_both(peer)
    if is_busy:
        peer.send(pack(prompt_job("long", [SLOW], max_tokens=999)))
        peer.next()
    peer.connection.close()
    assert peer.has_ended()
    assert peer.error is None
