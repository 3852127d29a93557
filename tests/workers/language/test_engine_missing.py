"""Images that come without embeddings: known ones are answered, others named, none forgotten."""

from collections.abc import Collection
from dataclasses import replace

import msgspec
import pytest

from tests.workers.language.conftest import KIMI
from tests.workers.language.conversations import (
    Recorder,
    ask,
    cached,
    distance,
    join,
    make_requests,
    put,
    sampling,
)
from tests.workers.language.engines import answers, drain, make_engine, text_request
from tests.workers.language.models import LentArenas, Model, Request, make_job, make_request
from tests.workers.language.rows import TOLERANCE
from workers.language.engine import Engine
from workers.language.scheduler import Scheduler
from workers.language.sequence import Sequence
from workers.messages import Failed, Finished, FromWorker, GenerateJob, Missing, Stats

BLOCK_TOKENS = 16
NUM_REQUESTS = 24


def bare_job(
    arenas: LentArenas, request: Request, seed: int, needed: Collection[int] = ()
) -> GenerateJob:
    """A job with the embeddings of the images that begin at `needed` alone."""
    job = make_job(arenas, request, str(seed), sampling(request, seed))
    spans = [
        span if span.start in needed else msgspec.structs.replace(span, embeddings=None)
        for span in job.spans
    ]
    return msgspec.structs.replace(job, spans=tuple(spans))


def missing(events: list[FromWorker]) -> dict[str, tuple[int, ...]]:
    return {event.job_id: event.starts for event in events if isinstance(event, Missing)}


def offer(
    engine: Engine, arenas: LentArenas, requests: list[Request], num_at_once: int
) -> tuple[list[FromWorker], int]:
    """Have all answered without embeddings as far as the engine can; how many images it named."""
    events: list[FromWorker] = []
    needed: dict[int, set[int]] = {index: set() for index in range(len(requests))}
    waiting, running, num_named = list(needed), 0, 0
    while waiting or engine.busy:
        while waiting and running < num_at_once:
            index = waiting.pop(0)
            engine.put(bare_job(arenas, requests[index], index, needed[index]))
            running += 1
        new = engine.step()
        engine.check()
        events += new
        for job_id, starts in missing(new).items():
            assert not set(starts) & needed[int(job_id)], "named though it came"
            needed[int(job_id)] |= set(starts)
            num_named += len(starts)
            waiting.insert(0, int(job_id))
        running -= sum(isinstance(each, Finished | Failed | Missing) for each in new)
    return events, num_named


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3_vl", KIMI], indirect=True)
@pytest.mark.parametrize(
    ("limits", "share"),
    [
        pytest.param({}, 0.33, id="room for all"),
        pytest.param(
            {"kv_cache_tokens": 1400, "max_context_tokens": 500, "kv_block_tokens": 2},
            0.33,
            id="little room",
        ),
        pytest.param(  # nothing may be anchored
            {"kv_cache_tokens": 480, "max_context_tokens": 480, "kv_block_tokens": 8}, 1, id="least"
        ),
    ],
)
def test_answers_are_the_same_without_the_embeddings_of_known_images(
    model: Model, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int], share: float
) -> None:
    """`share` of the images has to be sent at most, once they have all been seen."""
    recorder = Recorder(monkeypatch)
    arenas = LentArenas()
    requests = make_requests(model, 3, NUM_REQUESTS)
    plain = answers(ask(make_engine(model, arenas, prefix_cache=False), arenas, requests))
    expected = recorder.take()
    engine = make_engine(model, arenas, **limits)
    num_images = sum(len(request.starts) for request in requests)
    for _ in ("cold", "warm"):
        events, num_named = offer(engine, arenas, requests, 8)
        assert answers(events) == plain
        assert distance(recorder.take(), expected) < TOLERANCE
        last = [event for event in events if isinstance(event, Stats)][-1]
        assert last.kv_used_tokens == 0
    assert num_named <= share * num_images


@pytest.mark.slow
def test_a_job_that_misses_an_image_names_it_and_leaves_nothing(
    deep_model: Model, arenas: LentArenas
) -> None:
    engine = make_engine(deep_model, arenas, kv_block_tokens=2)
    first = make_request(deep_model, 8, 2)
    second = join(first, [3] * 20, make_request(deep_model, 9, 1))
    put(engine, arenas, first)
    drain(engine)
    engine.put(bare_job(arenas, second, 1))
    new = second.starts[2]
    assert missing(drain(engine)) == {"1": (new,)}
    engine.check()
    assert not engine.busy
    engine.put(bare_job(arenas, second, 1, {new}))
    events = drain(engine)
    assert not missing(events)
    plain = make_engine(deep_model, arenas, prefix_cache=False)
    put(plain, arenas, second, 1)
    assert answers(events) == answers(drain(plain))


def test_an_image_that_ends_in_a_block_that_is_not_full_is_missing(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = replace(make_request(deep_model, 8, 1), max_tokens=1)
    end = request.starts[0] + request.embeddings[0].shape[1]
    for size, is_known in ((2, True), (request.num_tokens + 1, False)):
        assert (end // size * size < request.num_tokens // size * size) == is_known
        engine = make_engine(deep_model, arenas, kv_block_tokens=size)
        put(engine, arenas, request)
        drain(engine)
        engine.put(bare_job(arenas, request, 1))
        assert (missing(drain(engine)) == {}) == is_known


@pytest.mark.slow
@pytest.mark.parametrize("has_anchors", [True, pytest.param(False, id="control")])
def test_what_a_job_was_taken_for_is_held_however_long_it_waits(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch, has_anchors: bool
) -> None:
    add = Scheduler.add

    def add_without(scheduler: Scheduler, sequence: Sequence, num_anchored_tokens: int) -> None:
        add(scheduler, sequence, 0)

    first = replace(make_request(deep_model, 8, 1), max_tokens=2)
    later = replace(join(first, [3] * 8, text_request(8, 5)), max_tokens=5)
    plain = make_engine(deep_model, arenas, prefix_cache=False)
    put(plain, arenas, later, 1)
    expected = answers(drain(plain))["1"]
    limits = {"kv_cache_tokens": 600, "max_context_tokens": 300, "max_step_sequences": 1}
    engine = make_engine(deep_model, arenas, kv_block_tokens=2, **limits)
    put(engine, arenas, first)
    drain(engine)
    if not has_anchors:
        monkeypatch.setattr(Scheduler, "add", add_without)
    for index in range(2, 6):  # all in front of it, and more than the rest of the cache
        put(engine, arenas, text_request(250, 20, index), index)
    engine.put(bare_job(arenas, later, 1))
    events = drain(engine)
    assert missing(events) == {}
    assert (answers(events)["1"] == expected) == has_anchors


def test_all_choices_of_a_request_have_one_anchor(deep_model: Model, arenas: LentArenas) -> None:
    first = replace(make_request(deep_model, 8, 1), max_tokens=2)
    later = replace(join(first, [3] * 8, text_request(8, 5)), max_tokens=5)
    room = later.num_tokens + 8  # the longest context, and as much for anchors
    engine = make_engine(
        deep_model, arenas, kv_block_tokens=2, kv_cache_tokens=2 * room, max_context_tokens=room
    )
    put(engine, arenas, first)
    drain(engine)
    for index in range(1, 9):
        engine.put(bare_job(arenas, later, index))
    events = drain(engine)
    assert missing(events) == {}
    assert cached(events).keys() == set(range(1, 9))
    engine.check()


def test_no_prefix_cache_means_that_every_image_is_missing(
    deep_model: Model, arenas: LentArenas
) -> None:
    engine = make_engine(deep_model, arenas, prefix_cache=False)
    request = make_request(deep_model, 8, 2)
    put(engine, arenas, request)
    drain(engine)
    engine.put(bare_job(arenas, request, 1))
    assert missing(drain(engine)) == {"1": tuple(request.starts)}


def test_an_abort_of_a_job_that_was_not_taken_does_nothing(
    deep_model: Model, arenas: LentArenas
) -> None:
    engine = make_engine(deep_model, arenas)
    engine.put(bare_job(arenas, make_request(deep_model, 8, 1), 1))
    engine.abort("1")
    events = drain(engine)
    assert [type(event) for event in events if not isinstance(event, Stats)] == [Missing]
