"""What is fenced, for how long, and what is merely under suspicion."""

import msgspec
import pytest

from gateway.jobs.fence import (
    INNOCENT,
    MAX_RECORDS,
    SUSPICION_SECONDS,
    Fence,
    ImageFenced,
    RequestFenced,
    prompt_key,
)
from workers.messages import GenerateJob, Region, Span, TensorRef
from workers.sampling import Sampling

A, B, C = b"a", b"b", b"c"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def fence(clock: Clock) -> Fence:
    return Fence(60, clock)


def test_at_a_first_death_all_are_suspects_and_none_is_refused(fence: Fence) -> None:
    assert fence.judge([A, B], INNOCENT) == INNOCENT
    assert [fence.num_deaths(key) for key in (A, B, C)] == [1, 1, 0]
    assert fence.num_fenced == 0


def test_who_was_alone_at_a_second_death_is_refused_and_nobody_else_pays(fence: Fence) -> None:
    fence.judge([A, B], INNOCENT)
    assert fence.judge([A, B, C], A) == A
    assert fence.seconds_left(A) == 60
    assert [fence.seconds_left(key) for key in (B, C)] == [0, 0]
    assert [fence.num_deaths(key) for key in (B, C)] == [1, 0]


def test_a_kill_from_outside_fences_for_a_tenth_and_then_for_twice_as_long(
    fence: Fence, clock: Clock
) -> None:
    times = []
    for _ in range(8):
        fence.judge([A], A, was_killed=True)
        times.append(fence.seconds_left(A))
        clock.now += 61
    assert times == [0, 6, 12, 24, 48, 60, 60, 60]
    for _ in range(2000):
        fence.judge([A], A, was_killed=True)
    assert fence.seconds_left(A) == 60


def test_after_any_kills_a_fault_fences_for_all_of_the_time(fence: Fence) -> None:
    fence.judge([A], A, was_killed=True)
    fence.judge([A], A)
    assert fence.seconds_left(A) == 60


def test_a_refusal_says_for_how_long_it_holds(fence: Fence, clock: Clock) -> None:
    for _ in range(2):
        fence.judge([A], A)
    clock.now += 18
    with pytest.raises(RequestFenced, match="42 s more") as prompt:
        fence.check_prompt(A)
    with pytest.raises(ImageFenced, match="42 s more") as image:
        fence.check_image(A, 3, "messages[0]")
    elsewhere = image.value.about(5, "messages[1]")
    refusals = (prompt.value, image.value, elsewhere)
    assert [each.retry_after_seconds for each in refusals] == [42] * 3


def test_who_was_alone_at_a_first_death_is_not_refused(fence: Fence) -> None:
    assert fence.judge([A], A) == INNOCENT
    assert fence.seconds_left(A) == 0


def test_who_was_in_company_at_two_deaths_is_not_refused(fence: Fence) -> None:
    fence.judge([A, B], INNOCENT)
    fence.judge([A, B], INNOCENT)
    assert fence.num_fenced == 0
    assert fence.num_deaths(A) == 2


def test_an_end_that_goes_well_clears(fence: Fence) -> None:
    fence.judge([A], A)
    fence.acquit(A)
    assert fence.judge([A], A) == INNOCENT


def test_the_fence_opens_by_itself_and_suspicion_stays_a_while(fence: Fence, clock: Clock) -> None:
    fence.judge([A], A)
    fence.judge([A], A)
    clock.now += 59.5
    assert fence.seconds_left(A) == 1
    clock.now += 1
    assert fence.seconds_left(A) == 0
    assert fence.num_deaths(A) == 2
    clock.now += SUSPICION_SECONDS
    assert fence.num_deaths(A) == 0


def test_the_table_is_bounded_and_keeps_the_latest(fence: Fence) -> None:
    fence.judge([A], A)
    fence.judge([str(number).encode() for number in range(MAX_RECORDS)], INNOCENT)
    assert fence.num_deaths(A) == 0
    assert fence.num_deaths(str(MAX_RECORDS - 1).encode()) == 1


def test_what_has_no_key_is_never_suspected(fence: Fence) -> None:
    fence.judge([INNOCENT], INNOCENT)
    assert fence.num_deaths(INNOCENT) == 0


def test_a_prompt_is_known_by_its_tokens_images_and_tenant_alone() -> None:
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=5, stop_token_ids=()
    )
    span = Span(
        start=2,
        num_tokens=4,
        grid=(1, 4, 4),
        embeddings=TensorRef(Region(0, 0, 64), "float32", (1, 4, 4)),
        identity=b"red",
    )
    job = GenerateJob(
        job_id="1",
        salt=b"me",
        token_ids=b"12345678",
        spans=(span,),
        sampling=sampling,
        seconds_left=5.0,
    )
    replace = msgspec.structs.replace
    moved = replace(span, embeddings=TensorRef(Region(1, 64, 64), "float32", (1, 4, 4)))
    again = replace(
        job,
        job_id="2",
        seconds_left=9.0,
        spans=(moved,),
        sampling=replace(sampling, seed=2),
    )
    assert prompt_key(again) == prompt_key(job)
    others = (
        replace(job, salt=b"you"),
        replace(job, token_ids=b"12345679"),
        replace(job, spans=()),
        replace(job, spans=(replace(span, identity=b"blue"),)),
    )
    assert len({prompt_key(each) for each in (job, *others)}) == 5
