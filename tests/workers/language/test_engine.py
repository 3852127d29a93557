"""What the engine promises beside right answers: ends, limits, faults, aborts, reports."""

import copy
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import pytest
import torch
from torch import Tensor

from tests.workers.language.engines import answers, make_engine, run
from tests.workers.language.models import (
    ListArenas,
    Model,
    Request,
    generate,
    greedy,
    make_job,
    make_request,
)
from workers.families import UnsupportedCheckpoint
from workers.families.qwen_vl.text import TextModel
from workers.language import engine as engine_module
from workers.language.engine import Engine
from workers.messages import (
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Sampling,
    Stats,
    Taken,
    Tokens,
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


@pytest.fixture
def arenas() -> ListArenas:
    return ListArenas()


def text_request(num_tokens: int, max_tokens: int, first: int = 1) -> Request:
    ids = [(first + 7 * index) % 700 for index in range(num_tokens)]
    return Request(ids, [], [], [], [], max_tokens)


def last_events(events: list[FromWorker]) -> dict[str, Finished | Failed]:
    last = [event for event in events if isinstance(event, Finished | Failed)]
    assert len({event.job_id for event in last}) == len(last)
    return {event.job_id: event for event in last}


def drain(engine: Engine) -> list[FromWorker]:
    return run(engine, [], 1)


def test_usage_and_reason_of_a_full_answer(deep_model: Model, arenas: ListArenas) -> None:
    request = make_request(deep_model, 11, 2)
    engine = make_engine(deep_model, arenas)
    events = run(engine, [make_job(arenas, request, "a")], 1)
    assert last_events(events)["a"] == Finished(
        job_id="a",
        reason="length",
        num_prompt_tokens=request.num_tokens,
        num_cached_tokens=0,
        num_completion_tokens=request.max_tokens,
    )
    assert events[0] == Taken(job_id="a")
    assert len(answers(events)["a"]) == request.max_tokens


def test_embeddings_are_copied_when_a_job_is_put(deep_model: Model, arenas: ListArenas) -> None:
    request = make_request(deep_model, 12, 3)
    engine = make_engine(deep_model, arenas, max_step_tokens=16)
    engine.put(make_job(arenas, request, "a"))
    for content in arenas.contents:
        content[:] = b"\xff" * len(content)
    assert answers(drain(engine))["a"] == generate(deep_model, request)


def test_answer_ends_where_the_context_ends(deep_model: Model, arenas: ListArenas) -> None:
    engine = make_engine(deep_model, arenas, max_context_tokens=40)
    events = run(engine, [make_job(arenas, text_request(30, 100), "a")], 1)
    end = last_events(events)["a"]
    assert isinstance(end, Finished)
    assert (end.reason, end.num_completion_tokens) == ("length", 10)


@pytest.mark.parametrize(
    "limits", [{"max_context_tokens": 40}, {"kv_cache_tokens": 40, "kv_block_tokens": 8}]
)
def test_prompt_that_cannot_fit_is_refused_with_both_numbers(
    deep_model: Model, arenas: ListArenas, limits: dict[str, int]
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


def test_limits_are_resolved(deep_model: Model, arenas: ListArenas) -> None:
    engine = make_engine(deep_model, arenas, kv_cache_tokens=0, max_context_tokens=0)
    assert engine.max_context_tokens == deep_model.layout.max_context_tokens == 4096
    assert engine.kv_cache_tokens == 8 * 4096
    assert make_engine(deep_model, arenas, max_context_tokens=9999).max_context_tokens == 4096
    assert make_engine(deep_model, arenas, kv_cache_tokens=100).kv_cache_tokens == 96


def test_abort_ends_a_job_within_one_step(deep_model: Model, arenas: ListArenas) -> None:
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
    assert events[-1] == Stats(num_running=0, num_waiting=0, kv_used_tokens=0, num_images_waiting=0)
    assert not engine.busy


def test_deadline_ends_running_and_waiting_jobs(
    deep_model: Model, arenas: ListArenas, clock: Clock
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


def break_span(job: GenerateJob, **changes: object) -> GenerateJob:
    first = msgspec.structs.replace(job.spans[0], **changes)
    return msgspec.structs.replace(job, spans=(first, *job.spans[1:]))


def break_reference(job: GenerateJob, **changes: object) -> GenerateJob:
    reference = msgspec.structs.replace(job.spans[0].embeddings, **changes)
    return break_span(job, embeddings=reference)


BROKEN: dict[str, Callable[[GenerateJob], GenerateJob]] = {
    "too many tokens": lambda job: break_span(job, num_tokens=job.spans[0].num_tokens + 1),
    "outside": lambda job: break_span(job, start=len(job.token_ids) // 4),
    "overlap": lambda job: break_span(job, start=job.spans[1].start),
    "before": lambda job: break_span(job, start=-1),
    "other grid": lambda job: break_span(job, grid=(1, 200, 200)),
    "shape": lambda job: break_reference(job, shape=(1, 2, 3)),
    "dtype": lambda job: break_reference(job, dtype="int32"),
    "no dtype": lambda job: break_reference(job, dtype="nn"),
    "size": lambda job: break_reference(job, dtype="float64"),
    "ids": lambda job: msgspec.structs.replace(job, token_ids=b"\xff\xff\xff\x7f" * 300),
    "half an id": lambda job: msgspec.structs.replace(job, token_ids=job.token_ids[:-1]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_jobs_that_contradict_themselves_fail_alone(
    deep_model: Model, arenas: ListArenas, name: str
) -> None:
    request = make_request(deep_model, 14, 2)
    engine = make_engine(deep_model, arenas)
    engine.put(make_job(arenas, request, "good"))
    engine.put(BROKEN[name](make_job(arenas, request, "bad")))
    events = drain(engine)
    bad = last_events(events)["bad"]
    assert isinstance(bad, Failed)
    assert bad.kind == "internal"
    assert isinstance(last_events(events)["good"], Finished)
    assert Taken(job_id="bad") not in events


def test_empty_prompt_is_bad_input(deep_model: Model, arenas: ListArenas) -> None:
    engine = make_engine(deep_model, arenas)
    ends = last_events(run(engine, [make_job(arenas, text_request(0, 5), "a")], 1))
    assert isinstance(ends["a"], Failed)
    assert ends["a"].kind == "bad_input"


def test_fault_in_a_step_ends_its_sequences_only(
    deep_model: Model,
    arenas: ListArenas,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embed = deep_model.decoder.embed

    def fail(ids: Tensor) -> Tensor:
        raise RuntimeError("device on fire")

    engine = make_engine(deep_model, arenas, max_step_sequences=2)
    for name in "abc":
        engine.put(make_job(arenas, text_request(20, 4), name))
    engine.step()
    monkeypatch.setattr(deep_model.decoder, "embed", fail)
    with caplog.at_level(logging.ERROR):
        failed = last_events(engine.step())
    engine.check()
    monkeypatch.setattr(deep_model.decoder, "embed", embed)
    assert {name: end.kind for name, end in failed.items() if isinstance(end, Failed)} == {
        "a": "internal",
        "b": "internal",
    }
    assert "device on fire" in caplog.text
    assert "fire" not in "".join(end.message for end in failed.values() if isinstance(end, Failed))
    assert answers(drain(engine))["c"] == generate(deep_model, text_request(20, 4))


def test_job_with_nan_fails_alone_and_leaves_nothing_behind(
    deep_model: Model, arenas: ListArenas
) -> None:
    request = make_request(deep_model, 15, 1)
    poison = replace(request, embeddings=[request.embeddings[0] * math.nan])
    engine = make_engine(deep_model, arenas, kv_cache_tokens=400)
    jobs = [make_job(arenas, each, name) for name, each in (("a", request), ("nan", poison))]
    events = run(engine, jobs, 2)
    bad = last_events(events)["nan"]
    assert isinstance(bad, Failed)
    assert bad.kind == "internal"
    good = [make_job(arenas, request, str(index)) for index in range(5)]
    events += run(engine, good, 5)
    expected = generate(deep_model, request)
    found = answers([event for event in events if event != bad])
    assert found == dict.fromkeys(("a", "0", "1", "2", "3", "4"), expected)


@pytest.mark.slow
def test_poison_of_an_aborted_prompt_does_not_spread(deep_model: Model, arenas: ListArenas) -> None:
    request = make_request(deep_model, 16, 2)
    poison = replace(request, embeddings=[each * math.nan for each in request.embeddings])
    engine = make_engine(deep_model, arenas, kv_cache_tokens=160, max_step_tokens=32)
    engine.put(make_job(arenas, poison, "nan"))
    for _ in range(3):  # part of the images is computed, no token chosen yet
        assert not any(isinstance(event, Tokens) for event in engine.step())
    engine.abort("nan")
    engine.put(make_job(arenas, request, "a"))
    assert answers(drain(engine))["a"] == generate(deep_model, request)


@pytest.mark.slow
def test_seeded_answers_do_not_depend_on_the_batch(deep_model: Model, arenas: ListArenas) -> None:
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


def test_load_is_told_once_a_second_and_when_idle(
    deep_model: Model, arenas: ListArenas, clock: Clock
) -> None:
    engine = make_engine(deep_model, arenas, max_step_sequences=1, kv_block_tokens=16)
    for name in "ab":
        engine.put(make_job(arenas, text_request(20, 6), name))
    reports = []
    while engine.busy:
        reports += [event for event in engine.step() if isinstance(event, Stats)]
        clock.now += 0.3
    assert reports == [
        Stats(num_running=1, num_waiting=1, kv_used_tokens=32, num_images_waiting=0),
        Stats(num_running=1, num_waiting=1, kv_used_tokens=32, num_images_waiting=0),
        Stats(num_running=1, num_waiting=0, kv_used_tokens=32, num_images_waiting=0),
        Stats(num_running=0, num_waiting=0, kv_used_tokens=0, num_images_waiting=0),
    ]
    assert engine.step() == []


def test_sliding_windows_are_refused(deep_model: Model) -> None:
    config = SimpleNamespace(layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(UnsupportedCheckpoint, match="sliding_attention"):
        TextModel(SimpleNamespace(config=config), deep_model.library.lm_head, 0)


def test_rotations_that_change_with_the_batch_are_refused(deep_model: Model) -> None:
    config = SimpleNamespace(rope_parameters={"rope_type": "dynamic"})
    with pytest.raises(UnsupportedCheckpoint, match="dynamic"):
        TextModel(SimpleNamespace(config=config), deep_model.library.lm_head, 0)


@pytest.mark.slow
def test_bfloat16_engine_takes_float32_embeddings(deep_model: Model, arenas: ListArenas) -> None:
    request = make_request(deep_model, 17, 2)
    library = copy.deepcopy(deep_model.library).to(torch.bfloat16)
    decoder = TextModel(library.model.language_model, library.lm_head, 2)
    engine = make_engine(replace(deep_model, decoder=decoder), arenas)
    found = answers(run(engine, [make_job(arenas, request, "a")], 1))["a"]
    assert len(found) == request.max_tokens
