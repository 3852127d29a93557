"""The next batch is prepared while the tower works, one batch ahead, and every job ends once."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor

from tests.plans import make_plan
from tests.workers.vision.jobs import Memory
from tests.workers.vision.towers import Averager, make_job, pixels_payload, random_picture
from workers.arena import Arenas
from workers.messages import Encoded, EncodeJob, Failed, FromWorker, Region
from workers.vision.owner import Owner

KEY = bytes(range(32))
LIMIT_SECONDS = 5.0
GRID = (1, 2, 4)  # of every image here
ONE_IMAGE = 8  # patches; as a limit it makes batches of one image


@dataclass
class Watched(Arenas):
    """Arenas that say which payloads are read, and by which thread."""

    inner: Arenas
    readers: dict[int, int] = field(default_factory=dict)  # offset of a region -> thread
    on_view: Callable[[Region], None] = lambda _region: None
    changed: threading.Condition = field(default_factory=threading.Condition)

    def view(self, region: Region) -> memoryview:
        self.on_view(region)
        with self.changed:
            self.readers.setdefault(region.offset, threading.get_ident())
            self.changed.notify_all()
        return self.inner.view(region)

    def wait_read(self, job: EncodeJob) -> bool:
        """Whether somebody reads the job's payload before the time limit."""
        offset = job.payload.region.offset
        with self.changed:
            return self.changed.wait_for(lambda: offset in self.readers, LIMIT_SECONDS)

    def has_read(self, job: EncodeJob) -> bool:
        return job.payload.region.offset in self.readers


@dataclass
class Busy(Averager):
    """A tower that does something while it works on its first batch."""

    meanwhile: Callable[[], None] = lambda: None

    def encode(self, patches: Tensor, grids: Sequence[tuple[int, int, int]]) -> list[Tensor]:
        if not self.passes:
            self.meanwhile()
        return super().encode(patches, grids)


class Scene:
    """Five images, each a batch of its own, and an owner for them."""

    def __init__(self, memory: Memory, looks_ahead: bool = True) -> None:
        plan = make_plan((8, 16), grid=GRID, patch_size=4, num_tokens=2)
        self.jobs = [
            make_job(memory, f"job-{n}", plan, pixels_payload(memory, random_picture(8, 16, n)))
            for n in range(5)
        ]
        self.arenas = Watched(memory.worker)
        self.tower = Busy()
        self.owner = Owner(self.tower, self.arenas, ONE_IMAGE, KEY, looks_ahead)

    def put_all(self) -> None:
        for job in self.jobs:
            self.owner.put(job)

    def run(self) -> list[FromWorker]:
        events: list[FromWorker] = []
        while self.owner.busy:
            events += self.owner.step()
        return events


def names(events: list[FromWorker], kind: type[Encoded] | type[Failed] = Encoded) -> list[str]:
    return [event.job_id for event in events if isinstance(event, kind)]


def test_the_next_batch_is_prepared_while_the_tower_works(memory: Memory) -> None:
    scene = Scene(memory)
    seen: list[bool] = []
    scene.tower.meanwhile = lambda: seen.append(scene.arenas.wait_read(scene.jobs[1]))
    scene.put_all()

    events = scene.owner.step()

    assert seen == [True]
    assert names(events) == ["job-0"]


def test_no_more_than_one_batch_is_prepared_ahead(memory: Memory) -> None:
    scene = Scene(memory)
    scene.put_all()
    for number in range(4):
        scene.owner.step()
        assert scene.arenas.wait_read(scene.jobs[number + 1])
        time.sleep(0.01)  # time enough to go on
        assert [scene.arenas.has_read(job) for job in scene.jobs[number + 2 :]] == [False] * (
            3 - number
        )


def test_in_line_nothing_is_prepared_before_its_turn(memory: Memory) -> None:
    scene = Scene(memory, looks_ahead=False)
    scene.put_all()

    scene.owner.step()

    assert [scene.arenas.has_read(job) for job in scene.jobs] == [True] + [False] * 4
    assert set(scene.arenas.readers.values()) == {threading.get_ident()}


def test_one_thread_prepares_and_writes_nothing(memory: Memory) -> None:
    scene = Scene(memory)
    scene.put_all()
    scene.run()

    readers = [scene.arenas.readers[job.payload.region.offset] for job in scene.jobs]
    writers = [scene.arenas.readers[job.target.offset] for job in scene.jobs]

    assert len(set(readers)) == 1
    assert set(writers) == {threading.get_ident()} != set(readers)


def test_the_towers_threads_stay_as_they_were(memory: Memory) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        scene = Scene(memory)
        counts: list[int] = []
        scene.arenas.on_view = lambda _region: counts.append(torch.get_num_threads())
        scene.put_all()
        scene.run()
        assert sorted(counts) == [1] * 5 + [3] * 5  # payloads, then targets
    finally:
        torch.set_num_threads(before)


def test_results_are_those_of_preparing_in_line(memory: Memory) -> None:
    ahead, in_line = Scene(memory), Scene(memory, looks_ahead=False)
    for scene in (ahead, in_line):
        scene.put_all()

    pairs = zip(ahead.run(), in_line.run(), strict=True)

    for one, other in pairs:
        assert isinstance(one, Encoded)
        assert isinstance(other, Encoded)
        assert (one.job_id, one.feature_digest) == (other.job_id, other.feature_digest)
    for one_job, other_job in zip(ahead.jobs, in_line.jobs, strict=True):
        view = memory.gateway.view
        assert bytes(view(one_job.target)) == bytes(view(other_job.target))


def test_a_job_aborted_while_it_is_prepared_ends_once_and_is_not_encoded(memory: Memory) -> None:
    scene = Scene(memory)
    scene.put_all()
    events = scene.owner.step()
    scene.owner.abort("job-1")
    scene.owner.abort("job-1")
    scene.owner.abort("job-0")  # has ended
    scene.owner.abort("job-3")  # still waits

    events += scene.run()

    assert names(events) == ["job-0", "job-2", "job-4"]
    assert sorted(names(events, Failed)) == ["job-1", "job-3"]
    assert scene.tower.passes == [[GRID]] * 3


def test_a_job_put_again_after_an_abort_is_encoded(memory: Memory) -> None:
    scene = Scene(memory)
    scene.put_all()
    scene.owner.step()
    scene.owner.abort("job-1")
    scene.run()
    scene.owner.put(scene.jobs[1])

    assert names(scene.run()) == ["job-1"]


def test_a_deadline_that_passes_while_it_is_prepared_is_kept(memory: Memory) -> None:
    scene = Scene(memory)
    scene.jobs[1] = msgspec.structs.replace(scene.jobs[1], seconds_left=0.02)
    scene.tower.meanwhile = lambda: time.sleep(0.03)
    scene.put_all()

    events = scene.run()

    assert names(events) == ["job-0", "job-2", "job-3", "job-4"]
    assert [event.kind for event in events if isinstance(event, Failed)] == ["deadline"]


def test_an_image_that_cannot_be_prepared_fails_alone(memory: Memory) -> None:
    scene = Scene(memory)
    region = Region(9, 0, 384)
    payload: Any = msgspec.structs.replace(scene.jobs[2].payload, region=region)
    scene.jobs[2] = msgspec.structs.replace(scene.jobs[2], payload=payload)
    scene.put_all()

    events = scene.run()

    assert names(events) == ["job-0", "job-1", "job-3", "job-4"]
    assert names(events, Failed) == ["job-2"]


def test_a_device_lost_while_preparing_ends_the_worker(memory: Memory) -> None:
    scene = Scene(memory)

    def lose(region: Region) -> None:
        if region == scene.jobs[1].payload.region:
            raise torch.AcceleratorError("device is lost")

    scene.arenas.on_view = lose
    scene.put_all()
    assert names(scene.owner.step()) == ["job-0"]

    with pytest.raises(torch.AcceleratorError):
        scene.owner.step()


def test_a_prepared_batch_keeps_the_owner_busy(memory: Memory) -> None:
    scene = Scene(memory)
    for job in scene.jobs[:2]:
        scene.owner.put(job)
    scene.owner.step()

    assert (scene.owner.busy, scene.owner.num_waiting) == (True, 1)
    assert names(scene.owner.step()) == ["job-1"]
    assert not scene.owner.busy
