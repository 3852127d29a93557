"""Wishes through a whole engine: against the library, across preemption, and among others."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch

from tests.workers.language.engines import answers, drain, last_events, make_engine, run
from tests.workers.language.models import (
    LentArenas,
    Model,
    inputs_for_library,
    make_job,
    make_request,
)
from tests.workers.language.wishes import make_sequence, make_wish, wished_scores
from workers.messages import Failed, Finished, FromWorker, GenerateJob, Started, Tokens
from workers.sampling import Likelihood, Sampling

NUM_TOKENS = 12
# Random weights repeat nothing by themselves; with these likely, they do.
FEW = dict.fromkeys(range(11, 15), 30.0)
WISHES: list[dict[str, Any]] = [
    {"frequency_penalty": 2.0, "presence_penalty": -0.5},
    {"presence_penalty": 2.0, "repetition_penalty": 1.5},
    {"repetition_penalty": 1.3},
    {"frequency_penalty": -2.0},
]


def reference(model: Model, prompt: list[int], sampling: Sampling) -> list[int]:
    """Greedy answer of the library's model under wishes, a whole forward pass a token."""
    sequence = make_sequence(prompt, sampling)
    for _ in range(sampling.max_tokens):
        with torch.inference_mode():
            logits = model.library(input_ids=torch.tensor([sequence.token_ids])).logits[0, -1]
        scores = wished_scores(logits.tolist(), sequence)
        sequence.token_ids.append(max(range(len(scores)), key=scores.__getitem__))
    return sequence.token_ids[len(prompt) :]


def jobs_of(model: Model, arenas: LentArenas, **limits: Any) -> tuple[list[GenerateJob], list[Any]]:
    requests = [make_request(model, 40 + number, 0) for number in range(len(WISHES))]
    wishes = [make_wish(max_tokens=NUM_TOKENS, logit_bias=FEW, **wish) for wish in WISHES]
    jobs = [
        make_job(arenas, replace(request, max_tokens=NUM_TOKENS), f"{number}", wish)
        for number, (request, wish) in enumerate(zip(requests, wishes, strict=True))
    ]
    return jobs, [(request.token_ids, wish) for request, wish in zip(requests, wishes, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"kv_cache_tokens": 80, "kv_block_tokens": 4},  # little room: they preempt each other
        {"max_step_tokens": 5},
    ],
)
def test_penalised_answers_are_the_references(
    deep_model: Model, arenas: LentArenas, limits: dict[str, int]
) -> None:
    jobs, asked = jobs_of(deep_model, arenas)
    engine = make_engine(deep_model, arenas, **limits)
    found = answers(run(engine, jobs, len(jobs)))
    expected = [reference(deep_model, prompt, wish) for prompt, wish in asked]
    plain_wish = make_wish(max_tokens=NUM_TOKENS, logit_bias=FEW)
    plain = [reference(deep_model, prompt, plain_wish) for prompt, _ in asked]
    assert all(one != other for one, other in zip(expected, plain, strict=True))
    assert [found[str(number)] for number in range(len(jobs))] == expected


def test_little_room_makes_sequences_wait_for_each_other(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above relies on: answers are interrupted and computed anew."""
    jobs, _ = jobs_of(deep_model, arenas)
    engine = make_engine(deep_model, arenas, kv_cache_tokens=80, kv_block_tokens=4)
    for job in jobs:
        engine.put(job)
    num_waiting = []
    while engine.busy:
        engine.step()
        num_waiting.append(engine._scheduler.num_waiting)
    assert any(after > before for before, after in pairwise(num_waiting))


def test_repetition_penalty_with_images_is_the_librarys(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = replace(make_request(deep_model, 51, 2), max_tokens=NUM_TOKENS)
    wish = make_wish(max_tokens=NUM_TOKENS, repetition_penalty=1.6)
    output = deep_model.library.generate(
        **inputs_for_library(deep_model, request),
        max_new_tokens=NUM_TOKENS,
        do_sample=False,
        eos_token_id=None,
        repetition_penalty=1.6,
    )
    found = answers(run(make_engine(deep_model, arenas), [make_job(arenas, request, "a", wish)], 1))
    assert found["a"] == output[0, request.num_tokens :].tolist()


def test_ended_jobs_leave_no_counts_behind(deep_model: Model, arenas: LentArenas) -> None:
    jobs, _ = jobs_of(deep_model, arenas)
    engine = make_engine(deep_model, arenas)
    for job in jobs:
        engine.put(job)
    for _ in range(3):
        engine.step()
    engine.abort("1")
    drain(engine)
    assert not engine._sampler._counts._rows


def logprobs_of(events: list[FromWorker], job_id: str) -> list[Likelihood]:
    found = [event for event in events if isinstance(event, Tokens) and event.job_id == job_id]
    return [each for event in found for each in event.likelihoods]


def test_logprobs_are_the_librarys(deep_model: Model, arenas: LentArenas) -> None:
    request = replace(make_request(deep_model, 52, 0), max_tokens=6)
    wish = make_wish(max_tokens=6, logprobs=True, top_logprobs=3, presence_penalty=1.0)
    events = run(make_engine(deep_model, arenas), [make_job(arenas, request, "a", wish)], 1)
    answer = answers(events)["a"]
    found = logprobs_of(events, "a")
    ids = torch.tensor([request.token_ids + answer])
    with torch.inference_mode():
        expected = deep_model.library(input_ids=ids).logits[0].log_softmax(-1)
    rows = expected[request.num_tokens - 1 : -1]
    for row, token_id, likelihood in zip(rows, answer, found, strict=True):
        assert likelihood.logprob == pytest.approx(row[token_id].item(), abs=1e-4)
        values, ids = row.topk(3)
        assert [token for token, _ in likelihood.top] == ids.tolist()
        assert [value for _, value in likelihood.top] == pytest.approx(values.tolist(), abs=1e-4)


def test_nothing_is_told_of_logprobs_unless_asked(deep_model: Model, arenas: LentArenas) -> None:
    job = make_job(arenas, make_request(deep_model, 53, 0), "a")
    assert logprobs_of(run(make_engine(deep_model, arenas), [job], 1), "a") == []


def test_min_tokens_puts_the_stop_token_off(deep_model: Model, arenas: LentArenas) -> None:
    request = make_request(deep_model, 54, 0)
    first = reference(deep_model, request.token_ids, make_wish(max_tokens=1))[0]
    wishes = [
        make_wish(max_tokens=9, stop_token_ids=(first,), min_tokens=count, logit_bias={first: 50.0})
        for count in (0, 4)
    ]
    jobs = [make_job(arenas, request, str(at), wish) for at, wish in enumerate(wishes)]
    ends = last_events(run(make_engine(deep_model, arenas), jobs, 2))
    assert [
        (end.reason, end.num_completion_tokens)
        for end in (ends["0"], ends["1"])
        if isinstance(end, Finished)
    ] == [("stop", 1), ("stop", 5)]


@pytest.mark.parametrize(
    "wish",
    [
        {"logit_bias": {100_000: 1.0}},
        {"logit_bias": {-1: 1.0}},
        {"stop_token_ids": (100_000,), "min_tokens": 1},
    ],
)
def test_a_token_that_the_model_lacks_is_refused_and_harms_nobody(
    deep_model: Model, arenas: LentArenas, wish: dict[str, Any]
) -> None:
    request = make_request(deep_model, 55, 0)
    jobs = [make_job(arenas, request, "good"), make_job(arenas, request, "bad", make_wish(**wish))]
    ends = last_events(run(make_engine(deep_model, arenas), jobs, 2))
    bad = ends["bad"]
    assert isinstance(bad, Failed)
    assert bad.kind == "bad_input"
    assert next(iter(wish)) in bad.message
    assert isinstance(ends["good"], Finished)


def test_choices_of_one_prompt_compute_it_once(deep_model: Model, arenas: LentArenas) -> None:
    request = replace(make_request(deep_model, 56, 2), max_tokens=3)
    jobs = [
        make_job(arenas, request, str(seed), make_wish(temperature=1.0, seed=seed, max_tokens=3))
        for seed in range(4)
    ]
    events = run(make_engine(deep_model, arenas, kv_block_tokens=4), jobs, 4)
    cached = [event.num_cached_tokens for event in events if isinstance(event, Started)]
    assert cached == [0] + [4 * ((request.num_tokens - 1) // 4)] * 3
    assert len({tuple(answer) for answer in answers(events).values()}) > 1
