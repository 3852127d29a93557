"""Suspects run one at a time, newcomers wait for them, and deaths are put down to the right one."""

from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest

from gateway.jobs.fence import FENCE_SECONDS, Fence
from gateway.jobs.ward import Ward
from tests.gateway.jobs.test_dispatch import RecordingPool, encode_job, encoded, generate_job
from workers.fail_kind import FailKind
from workers.messages import Failed, Finished, FromWorker, Tokens
from workers.pool import OutboxFull, Pool

WORKER = 0


@dataclass
class Desk:
    """A ward in front of a pool that remembers; names are job ids and keys alike."""

    pool: RecordingPool = field(default_factory=RecordingPool)
    fence: Fence = field(default_factory=Fence)
    told: list[FromWorker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ward = Ward(cast("Pool", self.pool), self.fence, self.tell)

    def tell(self, worker: int, event: FromWorker) -> None:
        self.told.append(event)

    def send(self, *names: str) -> None:
        for name in names:
            self.ward.send(WORKER, generate_job(name), name.encode())

    def take_sent(self) -> list[str]:
        sent, self.pool.sent = self.pool.sent, []
        return [message.job_id for _, message in sent]

    def answer(self, name: str) -> None:
        self.ward.hear(WORKER, Tokens(job_id=name, token_ids=(1,)))

    def finish(self, name: str, reason: Any = "stop") -> None:
        end = Finished(job_id=name, reason=reason, num_prompt_tokens=1, num_completion_tokens=1)
        self.ward.hear(WORKER, end)

    def die(self, *names: str, kind: FailKind = "lost") -> dict[str, str]:
        """The worker dies with these jobs; what that means for each."""
        meant: dict[str, str] = {}
        for name in names:
            event = self.ward.hear(WORKER, Failed(job_id=name, kind=kind, message=""))
            assert isinstance(event, Failed)
            meant[name] = event.kind
        self.ward.lose(WORKER)
        return meant


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def suspects(desk: Desk) -> Desk:
    """`a`, `b` and `c` were there when a worker died."""
    desk.send("a", "b", "c")
    assert desk.take_sent() == ["a", "b", "c"]
    assert set(desk.die("a", "b", "c").values()) == {"lost"}
    return desk


def test_suspects_read_their_prompts_one_after_the_other(suspects: Desk) -> None:
    suspects.send("a", "b", "c")
    assert suspects.take_sent() == ["a"]
    suspects.answer("a")
    assert suspects.take_sent() == ["b"]
    suspects.finish("b")
    assert suspects.take_sent() == ["c"]


def test_newcomers_wait_behind_all_suspects(suspects: Desk) -> None:
    suspects.send("a", "new", "b")
    suspects.answer("a")
    assert suspects.take_sent() == ["a", "b"]
    suspects.answer("b")
    assert suspects.take_sent() == ["new"]


def test_another_worker_is_not_held_up(suspects: Desk) -> None:
    suspects.send("a")
    suspects.ward.send(1, generate_job("new"), b"new")
    assert suspects.take_sent() == ["a", "new"]


def test_a_suspect_image_is_on_trial_until_it_is_encoded(suspects: Desk) -> None:
    suspects.ward.send(WORKER, encode_job("image"), b"a")
    suspects.send("new")
    assert suspects.take_sent() == ["image"]
    suspects.ward.hear(WORKER, encoded("image"))
    assert suspects.take_sent() == ["new"]
    assert suspects.fence.num_deaths(b"a") == 0


def test_the_one_on_trial_is_the_culprit_and_the_rest_are_merely_gone(suspects: Desk) -> None:
    suspects.send("b", "a", "c", "new")
    suspects.answer("b")
    assert suspects.take_sent() == ["b", "a"]
    assert suspects.die("b", "a") == {"b": "gone", "a": "lost"}
    assert [event.job_id for event in suspects.told if isinstance(event, Failed)] == ["c", "new"]
    assert suspects.fence.seconds_left(b"a") > 0
    assert [suspects.fence.num_deaths(key) for key in (b"a", b"b", b"c", b"new")] == [2, 1, 1, 0]


def test_a_kill_from_outside_counts_like_any_death_and_fences_for_less(suspects: Desk) -> None:
    suspects.send("a", "b")
    assert suspects.die("a", kind="killed") == {"a": "lost"}
    assert [suspects.fence.num_deaths(key) for key in (b"a", b"b")] == [2, 1]
    assert 0 < suspects.fence.seconds_left(b"a") < FENCE_SECONDS / 2


def test_one_that_was_at_two_deaths_in_company_is_alone_to_its_end(suspects: Desk) -> None:
    suspects.send("a", "b")
    suspects.answer("a")
    suspects.answer("b")
    assert suspects.die("a", "b") == {"a": "lost", "b": "lost"}
    suspects.take_sent()
    suspects.send("a", "new")
    suspects.answer("a")
    assert suspects.take_sent() == ["a"]
    suspects.finish("a")
    assert suspects.take_sent() == ["new"]


def test_choices_of_one_request_are_one_suspect(desk: Desk) -> None:
    for name in ("one", "two"):
        desk.ward.send(WORKER, generate_job(name), b"key")
    desk.die("one", "two")
    assert desk.fence.num_deaths(b"key") == 1


def test_an_aborted_suspect_is_not_cleared_and_ends_its_trial(suspects: Desk) -> None:
    suspects.send("a", "new")
    suspects.finish("a", "abort")
    assert suspects.take_sent() == ["a", "new"]
    assert suspects.fence.num_deaths(b"a") == 1


def test_a_held_job_can_be_dropped_and_is_never_sent(suspects: Desk) -> None:
    suspects.send("a", "new")
    assert suspects.ward.drop(WORKER, "new")
    assert not suspects.ward.drop(WORKER, "a")
    suspects.answer("a")
    assert suspects.take_sent() == ["a"]


def test_a_job_for_a_worker_that_is_away_is_not_present_at_its_death(desk: Desk) -> None:
    desk.pool.ready = False
    desk.send("a")
    desk.ward.lose(WORKER)
    assert desk.fence.num_deaths(b"a") == 0


def test_time_spent_waiting_is_taken_off(suspects: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    suspects.send("a", "new")
    job = generate_job("new")
    suspects.answer("a")
    sent = suspects.pool.sent[-1][1]
    assert sent.seconds_left < job.seconds_left
    assert msgspec.structs.replace(sent, seconds_left=job.seconds_left) == job


def test_a_held_job_that_the_worker_does_not_read_is_told_and_the_next_goes(
    suspects: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspects.send("a", "new", "next")
    send = suspects.pool.send

    def refuse_new(index: int, message: Any) -> None:
        if message.job_id == "new":
            raise OutboxFull("full")
        send(index, message)

    monkeypatch.setattr(suspects.pool, "send", refuse_new)
    suspects.answer("a")
    assert suspects.take_sent() == ["a", "next"]
    assert [event.job_id for event in suspects.told if isinstance(event, Failed)] == ["new"]
