"""What the engine promises beside right answers: ends, limits, faults, aborts, reports."""

import copy
from dataclasses import replace

import msgspec
import pytest
import torch
from torch import Tensor

from tests.workers.language.engines import (
    answers,
    drain,
    last_events,
    make_engine,
    run,
    text_request,
)
from tests.workers.language.models import (
    LentArenas,
    Model,
    generate,
    greedy,
    make_job,
    make_request,
)
from workers.families.qwen_vl.text import TextModel
from workers.language import engine as engine_module
from workers.language import sampler
from workers.language.drawing import Draw, draw
from workers.messages import Failed, Finished, Stats, Taken
from workers.sampling import Sampling


def stats(num_running: int, num_waiting: int, kv_used: int, kv_cached: int = 0) -> Stats:
    return Stats(
        num_running=num_running,
        num_waiting=num_waiting,
        kv_used_tokens=kv_used,
        kv_cached_tokens=kv_cached,
        num_images_waiting=0,
    )


class Clock:
    """Stands in for the `time` module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(engine_module, "time", clock)
    return clock


def test_usage_and_reason_of_a_full_answer(deep_model: Model, arenas: LentArenas) -> None:
    request = make_request(deep_model, 11, 2)
    engine = make_engine(deep_model, arenas)
    events = run(engine, [make_job(arenas, request, "a")], 1)
    assert last_events(events)["a"] == Finished(
        job_id="a",
        reason="length",
        num_prompt_tokens=request.num_tokens,
        num_completion_tokens=request.max_tokens,
    )
    assert isinstance(events[0], Taken)
    assert events[0].is_copied
    assert 0 < events[0].transfer_seconds < 1
    assert len(answers(events)["a"]) == request.max_tokens


def test_stop_token_ends_the_answer_and_is_counted_but_not_told(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = replace(make_request(deep_model, 11, 1), max_tokens=9)
    expected = generate(deep_model, request)
    stop = expected[4]
    job = make_job(arenas, request, "a", greedy(9, (stop,)))
    events = run(make_engine(deep_model, arenas), [job], 1)
    assert answers(events)["a"] == expected[: expected.index(stop)]
    end = last_events(events)["a"]
    assert isinstance(end, Finished)
    assert (end.reason, end.num_completion_tokens) == ("stop", expected.index(stop) + 1)


def test_draws_are_numbered_by_the_tokens_of_the_answer(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    indices: list[int] = []

    def recording(logits: Tensor, draws: list[Draw]) -> tuple[Tensor, Tensor]:
        indices.extend(each.index for each in draws)
        return draw(logits, draws)

    monkeypatch.setattr(sampler, "draw", recording)
    run(make_engine(deep_model, arenas), [make_job(arenas, text_request(9, 4), "a")], 1)
    assert indices == [0, 1, 2, 3]


def test_embeddings_are_copied_when_a_job_is_put(deep_model: Model, arenas: LentArenas) -> None:
    request = make_request(deep_model, 12, 3)
    engine = make_engine(deep_model, arenas, max_step_tokens=16)
    engine.put(make_job(arenas, request, "a"))
    for region in arenas.regions:
        arenas.arena.view(region)[:] = b"\xff" * region.num_bytes
    assert answers(drain(engine))["a"] == generate(deep_model, request)


def test_answer_ends_where_the_context_ends(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, max_context_tokens=40)
    events = run(engine, [make_job(arenas, text_request(30, 100), "a")], 1)
    end = last_events(events)["a"]
    assert isinstance(end, Finished)
    assert (end.reason, end.num_completion_tokens) == ("length", 10)


@pytest.mark.parametrize(
    "limits", [{"max_context_tokens": 40}, {"kv_cache_tokens": 40, "kv_block_tokens": 8}]
)
def test_prompt_that_cannot_fit_is_refused_with_both_numbers(
    deep_model: Model, arenas: LentArenas, limits: dict[str, int]
) -> None:
    engine = make_engine(deep_model, arenas, **limits)
    jobs = [make_job(arenas, text_request(length, 5), str(length)) for length in (39, 40)]
    ends = last_events(run(engine, jobs, 2))
    refused = ends["40"]
    assert isinstance(refused, Failed)
    assert refused.kind == "bad_input"
    assert "40 tokens" in refused.message
    assert "context of 40" in refused.message
    assert isinstance(ends["39"], Finished)


def test_limits_are_resolved(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, kv_cache_tokens=0, max_context_tokens=0)
    assert engine.max_context_tokens == deep_model.layout.max_context_tokens == 4096
    assert engine.kv_cache_tokens == 8 * 4096
    assert make_engine(deep_model, arenas, max_context_tokens=9999).max_context_tokens == 4096
    assert make_engine(deep_model, arenas, kv_cache_tokens=100).kv_cache_tokens == 96


def test_abort_ends_a_job_within_one_step(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, max_step_sequences=2)
    for name in "abc":
        engine.put(make_job(arenas, text_request(20, 50), name))
    engine.step()
    for name in ("a", "c", "unknown", "a"):
        engine.abort(name)
    ends = last_events(engine.step())
    engine.check()
    assert {
        name: (end.reason, end.num_completion_tokens)
        for name, end in ends.items()
        if isinstance(end, Finished)
    } == {"a": ("abort", 1), "c": ("abort", 0)}
    engine.abort("b")
    events = engine.step()
    assert events[-1] == stats(0, 0, 0, 16)
    assert not engine.busy


def test_deadline_ends_running_and_waiting_jobs(
    deep_model: Model, arenas: LentArenas, clock: Clock
) -> None:
    engine = make_engine(deep_model, arenas, max_step_sequences=1)
    for name, seconds in (("a", 5.0), ("b", 5.0), ("c", 50.0)):
        engine.put(make_job(arenas, text_request(9, 3), name, greedy(30), seconds))
    engine.step()
    clock.now += 6
    ends = last_events(engine.step())
    assert {name: end.kind for name, end in ends.items() if isinstance(end, Failed)} == {
        "a": "deadline",
        "b": "deadline",
    }
    assert last_events(drain(engine)).keys() == {"c"}


@pytest.mark.slow
def test_seeded_answers_do_not_depend_on_the_batch(deep_model: Model, arenas: LentArenas) -> None:
    requests = [make_request(deep_model, seed, seed % 3) for seed in range(20, 28)]
    wishes = [
        Sampling(
            temperature=0.9,
            top_p=[1.0, 0.8][seed % 2],
            top_k=[0, 20, 5][seed % 3],
            seed=seed,
            max_tokens=8,
            stop_token_ids=(),
        )
        for seed in range(8)
    ]

    def ask(num_at_once: int, order: list[int], **limits: int) -> dict[str, list[int]]:
        jobs = [make_job(arenas, requests[at], str(at), wishes[at]) for at in order]
        return answers(run(make_engine(deep_model, arenas, **limits), jobs, num_at_once))

    alone = ask(1, list(range(8)))
    assert alone == ask(8, list(range(8)))
    assert alone == ask(5, [3, 1, 7, 0, 2, 6, 5, 4], max_step_tokens=13)
    others = [msgspec.structs.replace(wish, seed=wish.seed + 100) for wish in wishes]
    wishes[:] = others
    assert alone != ask(8, list(range(8)))


def test_load_is_told_at_each_step_and_when_idle(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, max_step_sequences=1, kv_block_tokens=16)
    for name in "ab":
        engine.put(make_job(arenas, text_request(20, 6), name))
    reports = []
    while engine.busy:
        told = [event for event in engine.step() if isinstance(event, Stats)]
        assert len(told) == 1
        reports += told if told[0] not in reports else []
    assert reports == [
        stats(1, 1, 32),
        stats(0, 1, 0, 16),
        stats(1, 0, 32),
        stats(0, 0, 0, 16),
    ]
    assert engine.step() == []


@pytest.mark.slow
def test_bfloat16_engine_takes_float32_embeddings(deep_model: Model, arenas: LentArenas) -> None:
    request = make_request(deep_model, 17, 2)
    library = copy.deepcopy(deep_model.library).to(torch.bfloat16)
    decoder = TextModel(library.model.language_model, library.lm_head, 2)
    engine = make_engine(replace(deep_model, decoder=decoder), arenas)
    found = answers(run(engine, [make_job(arenas, request, "a")], 1))["a"]
    assert len(found) == request.max_tokens
