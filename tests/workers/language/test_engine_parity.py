"""Greedy answers of the engine equal the library's own, however requests are batched."""

from typing import Any

import pytest

from tests.workers.language.models import (
    ListArenas,
    Model,
    Request,
    generate,
    greedy,
    make_job,
    make_request,
)
from workers.language.engine import Engine
from workers.messages import Failed, Finished, FromWorker, Tokens

NUM_REQUESTS = 40


def make_engine(model: Model, arenas: ListArenas, **limits: int) -> Engine:
    defaults = {
        "kv_cache_tokens": 8192,
        "kv_block_tokens": 16,
        "max_step_tokens": 2048,
        "max_step_sequences": 16,
        "max_context_tokens": 0,
    }
    return Engine(model.decoder, model.layout, arenas, **(defaults | limits))


def answers(events: list[FromWorker]) -> dict[str, list[int]]:
    """Tokens by job, once each job has ended well exactly once."""
    found: dict[str, list[int]] = {}
    ended = [event.job_id for event in events if isinstance(event, Finished | Failed)]
    assert len(ended) == len(set(ended))
    assert not [event for event in events if isinstance(event, Failed)]
    for event in events:
        if isinstance(event, Tokens):
            found.setdefault(event.job_id, []).extend(event.token_ids)
    return found


def run(engine: Engine, jobs: list[Any], num_at_once: int) -> list[FromWorker]:
    """Keep `num_at_once` jobs in the engine until all are done."""
    events: list[FromWorker] = []
    left, num_open = list(jobs), 0
    while left or engine.busy:
        while left and num_open < num_at_once:
            engine.put(left.pop(0))
            num_open += 1
        new = engine.step()
        engine.check()
        num_open -= sum(isinstance(event, Finished | Failed) for event in new)
        events += new
    return events


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
        pytest.param(5, {"max_step_tokens": 7, "max_step_sequences": 3}, id="tiny steps"),
        pytest.param(16, {"kv_cache_tokens": 288, "kv_block_tokens": 4}, id="few blocks"),
    ],
)
def test_greedy_answers_equal_the_library(
    model: Model,
    cases: tuple[list[Request], list[list[int]]],
    num_at_once: int,
    limits: dict[str, int],
) -> None:
    requests, expected = cases
    arenas = ListArenas()
    engine = make_engine(model, arenas, **limits)
    jobs = [make_job(arenas, each, str(index)) for index, each in enumerate(requests)]
    found = answers(run(engine, jobs, num_at_once))
    assert [found[str(index)] for index in range(len(requests))] == expected


@pytest.mark.slow
def test_answer_ends_before_a_stop_token(
    model: Model, cases: tuple[list[Request], list[list[int]]]
) -> None:
    requests, plain = cases
    arenas = ListArenas()
    engine = make_engine(model, arenas)
    stops = [(answer[len(answer) // 2],) for answer in plain]
    jobs = [
        make_job(arenas, each, str(index), greedy(each.max_tokens, stop))
        for index, (each, stop) in enumerate(zip(requests, stops, strict=True))
    ]
    events = run(engine, jobs, 16)
    found = answers(events)
    finished = {event.job_id: event for event in events if isinstance(event, Finished)}
    for index, (request, stop) in enumerate(zip(requests, stops, strict=True)):
        expected = generate(model, request, stop)
        assert found.get(str(index), []) == expected[:-1]
        assert finished[str(index)].reason == "stop"
        assert finished[str(index)].num_completion_tokens == len(expected)
