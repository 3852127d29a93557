"""Greedy answers of the engine equal the library's own, however requests are batched."""

import pytest

from tests.workers.language.engines import answers, make_engine, run
from tests.workers.language.models import (
    LentArenas,
    Model,
    Request,
    generate,
    greedy,
    make_job,
    make_request,
)
from workers.language.scheduler import Scheduler, Step
from workers.messages import Finished

NUM_REQUESTS = 40


@pytest.fixture(scope="module")
def known() -> dict[int, tuple[list[Request], list[list[int]]]]:
    return {}


@pytest.fixture
def cases(
    model: Model, known: dict[int, tuple[list[Request], list[list[int]]]]
) -> tuple[list[Request], list[list[int]]]:
    """Requests with 0 to 4 images, and the library's answers."""
    if id(model) not in known:
        requests = [make_request(model, seed, seed % 5) for seed in range(NUM_REQUESTS)]
        known[id(model)] = requests, [generate(model, request) for request in requests]
    return known[id(model)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_at_once", "limits"),
    [
        pytest.param(1, {}, id="alone"),
        pytest.param(16, {}, id="16 at once"),
        pytest.param(16, {"max_step_tokens": 23}, id="chunks inside images"),
        pytest.param(5, {"max_step_tokens": 31, "max_step_sequences": 3}, id="small steps"),
    ],
)
def test_greedy_answers_equal_the_library(
    model: Model,
    cases: tuple[list[Request], list[list[int]]],
    num_at_once: int,
    limits: dict[str, int],
) -> None:
    requests, expected = cases
    arenas = LentArenas()
    engine = make_engine(model, arenas, **limits)
    jobs = [make_job(arenas, each, str(index)) for index, each in enumerate(requests)]
    found = answers(run(engine, jobs, num_at_once))
    assert [found[str(index)] for index in range(len(requests))] == expected


@pytest.mark.slow
def test_greedy_answers_survive_preemption(
    model: Model,
    cases: tuple[list[Request], list[list[int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    preempted: set[str] = set()
    pick = Scheduler.pick

    def noting(scheduler: Scheduler) -> Step | None:
        step = pick(scheduler)
        waiting = [each for each in scheduler if not each.block_ids]
        preempted.update(each.job_id for each in waiting if each.num_completion_tokens)
        return step

    monkeypatch.setattr(Scheduler, "pick", noting)
    requests, expected = cases
    arenas = LentArenas()
    engine = make_engine(model, arenas, kv_cache_tokens=190, kv_block_tokens=2)
    jobs = [make_job(arenas, each, str(index)) for index, each in enumerate(requests)]
    found = answers(run(engine, jobs, 16))
    assert [found[str(index)] for index in range(len(requests))] == expected
    assert preempted


@pytest.mark.slow
def test_answer_ends_before_a_stop_token(
    model: Model, cases: tuple[list[Request], list[list[int]]]
) -> None:
    requests, plain = cases
    arenas = LentArenas()
    engine = make_engine(model, arenas)
    stops = [(answer[len(answer) // 2],) for answer in plain]
    jobs = [
        make_job(arenas, each, str(index), greedy(each.max_tokens, stop))
        for index, (each, stop) in enumerate(zip(requests, stops, strict=True))
    ]
    events = run(engine, jobs, 16)
    found = answers(events)
    finished = {event.job_id: event for event in events if isinstance(event, Finished)}
    for index, (answer, stop) in enumerate(zip(plain, stops, strict=True)):
        expected = answer[: answer.index(stop[0]) + 1]
        assert found.get(str(index), []) == expected[:-1]
        assert finished[str(index)].reason == "stop"
        assert finished[str(index)].num_completion_tokens == len(expected)
