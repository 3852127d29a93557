"""Prompts that begin alike: what is computed once, and answers that do not change by it."""

import math
from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from tests.checkpoints import MODEL_TYPES
from tests.workers.language.conftest import KIMI
from tests.workers.language.conversations import (
    Recorder,
    ask,
    cached,
    distance,
    join,
    make_requests,
    put,
    same_sizes,
    sampling,
)
from tests.workers.language.engines import answers, drain, last_events, make_engine, text_request
from tests.workers.language.models import LentArenas, Model, make_job, make_request
from tests.workers.language.rows import TOLERANCE
from workers.language.prefix import BlockKeys
from workers.language.prompts import PromptReader
from workers.language.scheduler import Scheduler, Step
from workers.messages import Failed, Span, Stats

BLOCK_TOKENS = 16
NUM_REQUESTS = 24
RANDOM_MODELS = (*MODEL_TYPES, KIMI)


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS, indirect=True)
@pytest.mark.parametrize(
    ("num_at_once", "limits"),
    [
        pytest.param(1, {}, id="alone"),
        pytest.param(12, {"max_step_tokens": 29, "kv_block_tokens": 3}, id="small steps"),
        pytest.param(
            8,
            {"kv_cache_tokens": 1000, "max_context_tokens": 500, "kv_block_tokens": 2},
            id="little room",
        ),
        pytest.param(
            6, {"kv_cache_tokens": 480, "max_context_tokens": 480, "kv_block_tokens": 8}, id="least"
        ),
    ],
)
def test_answers_are_the_same_without_the_cache(
    model: Model, monkeypatch: pytest.MonkeyPatch, num_at_once: int, limits: dict[str, Any]
) -> None:
    recorder = Recorder(monkeypatch)
    arenas = LentArenas()
    requests = make_requests(model, 3, NUM_REQUESTS)
    plain = answers(ask(make_engine(model, arenas, prefix_cache=False), arenas, requests))
    expected = recorder.take()
    engine = make_engine(model, arenas, **limits)
    aborted = frozenset(range(5, NUM_REQUESTS, 7))
    for _ in ("cold", "warm"):
        events = ask(engine, arenas, requests, num_at_once, aborted)
        found = answers(events)
        assert distance(recorder.take(), expected) < TOLERANCE
        for index in set(range(NUM_REQUESTS)) - aborted:
            assert found[str(index)] == plain[str(index)]
        assert sum(cached(events).values()) > 300
        last = [event for event in events if isinstance(event, Stats)][-1]
        assert last.kv_used_tokens == 0
        assert last.kv_cached_tokens > 0


@pytest.mark.slow
@pytest.mark.parametrize("model", RANDOM_MODELS, indirect=True)
def test_control_images_of_equal_size_are_confused_by_their_token_ids(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    arenas = LentArenas()
    request = make_request(model, 2, 2)
    other = same_sizes(request, 0)
    ask(make_engine(model, arenas, prefix_cache=False), arenas, [request, other])
    expected = recorder.take()
    first_image = request.starts[0]

    def tell(by_token_id_alone: bool) -> tuple[int, float]:
        if by_token_id_alone:
            monkeypatch.setattr(BlockKeys, "__init__", without_images)
        engine = make_engine(model, arenas, kv_block_tokens=2)
        found = cached(ask(engine, arenas, [request, other]))
        return found[1], distance(recorder.take(), expected)

    make_keys = BlockKeys.__init__

    def without_images(
        keys: BlockKeys, secret: bytes, salt: bytes, spans: list[Span], block_tokens: int
    ) -> None:
        make_keys(keys, secret, salt, [], block_tokens)

    num_cached, difference = tell(by_token_id_alone=False)
    assert num_cached <= first_image
    assert difference < TOLERANCE
    num_cached, difference = tell(by_token_id_alone=True)
    assert num_cached > first_image
    assert difference > 100 * TOLERANCE


def test_the_next_turn_computes_what_is_new(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas)
    first = replace(make_request(deep_model, 5, 2), max_tokens=20)
    put(engine, arenas, first)
    answer = answers(drain(engine))["0"]
    second = join(first, answer, make_request(deep_model, 6, 1))
    put(engine, arenas, second, 1)
    num_computed = first.num_tokens + len(answer) - 1  # the last was chosen, not computed
    assert cached(drain(engine)) == {1: num_computed // BLOCK_TOKENS * BLOCK_TOKENS}


def test_an_equal_prompt_computes_its_last_block(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas)
    requests = [text_request(64, 3), text_request(64, 3), text_request(65, 3)]
    assert cached(ask(engine, arenas, requests)) == {0: 0, 1: 48, 2: 64}


def test_prompts_that_come_together_are_computed_once(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed: list[int] = []
    embed = deep_model.decoder.embed

    def counting(ids: Tensor) -> Tensor:
        computed.append(len(ids))
        return embed(ids)

    monkeypatch.setattr(deep_model.decoder, "embed", counting)
    request = replace(make_request(deep_model, 7, 3), max_tokens=1)
    engine = make_engine(deep_model, arenas)
    found = cached(ask(engine, arenas, [request] * 4, num_at_once=4))
    num_known = (request.num_tokens - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert found == {0: 0, 1: num_known, 2: num_known, 3: num_known}
    assert computed == [request.num_tokens + 3 * (request.num_tokens - num_known)]


def test_nothing_is_shared_when_the_cache_is_off(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, prefix_cache=False)
    events = ask(engine, arenas, [text_request(64, 3)] * 3, num_at_once=2)
    assert cached(events) == {0: 0, 1: 0, 2: 0}
    assert [event for event in events if isinstance(event, Stats)][-1].kv_cached_tokens == 0


def test_prompts_of_other_tenants_are_not_shared(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas)
    request = text_request(64, 3)
    for index, salt in enumerate([b"a", b"b", b"a"]):
        engine.put(make_job(arenas, request, str(index), sampling(request, index), salt=salt))
    assert cached(drain(engine)) == {0: 0, 1: 0, 2: 48}


def test_images_that_are_known_are_not_read(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    read_pictures = PromptReader.read_pictures

    def noting(reader: PromptReader, spans: tuple[Span, ...]) -> Any:
        read.append(len(spans))
        return read_pictures(reader, spans)

    monkeypatch.setattr(PromptReader, "read_pictures", noting)
    engine = make_engine(deep_model, arenas, kv_block_tokens=2)
    first = make_request(deep_model, 8, 2)
    second = join(first, [3] * 20, make_request(deep_model, 9, 1))
    for request in (first, second, second):
        put(engine, arenas, request)
        drain(engine)
    assert read == [2, 1, 0]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["qwen3_vl", KIMI], indirect=True)
def test_known_images_are_not_needed_after_a_preemption(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    arenas = LentArenas()
    first = make_request(model, 10, 1)
    later = [replace(join(first, [each], text_request(20, 80)), max_tokens=80) for each in range(4)]
    requests = [first, *later]
    ask(make_engine(model, arenas, prefix_cache=False), arenas, requests)
    expected = recorder.take()
    preempted: set[str] = set()
    pick = Scheduler.pick

    def noting(scheduler: Scheduler) -> Step | None:
        step = pick(scheduler)
        waiting = [each for each in scheduler if not each.num_computed_tokens]
        preempted.update(
            each.job_id
            for each in waiting
            if each.num_completion_tokens and each.num_anchored_blocks
        )
        return step

    monkeypatch.setattr(Scheduler, "pick", noting)
    longest = max(request.num_tokens + request.max_tokens for request in requests)
    room = longest + 4 * first.num_tokens  # for one and for the anchors of all
    engine = make_engine(
        model, arenas, max_context_tokens=longest, kv_cache_tokens=room, kv_block_tokens=2
    )
    put(engine, arenas, first)
    drain(engine)
    recorder.take()
    events = ask(engine, arenas, requests, num_at_once=5)
    assert len(answers(events)) == len(requests)
    assert preempted
    assert distance(recorder.take(), expected) < TOLERANCE


def test_an_answer_that_is_aborted_is_kept_as_far_as_it_went(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = text_request(40, 50)
    engine = make_engine(deep_model, arenas)
    put(engine, arenas, request)
    for _ in range(10):
        engine.step()
    engine.abort("0")
    drain(engine)
    assert cached(ask(engine, arenas, [text_request(60, 2)])) == {0: 32}


def test_a_prompt_that_is_aborted_unseen_is_not_kept(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, max_step_tokens=32)
    put(engine, arenas, text_request(100, 5))
    engine.step()
    engine.abort("0")
    drain(engine)
    assert cached(ask(engine, arenas, [text_request(100, 5)])) == {0: 0}


@pytest.mark.parametrize("fault", ["raises", "gives NaN"])
def test_a_fault_that_passes_leaves_nothing_in_the_cache(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    forward = deep_model.decoder.forward

    def fail(embeddings: Tensor, *others: Any) -> Tensor:
        found = forward(embeddings * math.nan, *others)
        if fault == "raises":
            raise RuntimeError("out of memory")
        return found

    request = make_request(deep_model, 11, 2)
    plain = make_engine(deep_model, arenas, prefix_cache=False)
    expected = answers(ask(plain, arenas, [request]))
    engine = make_engine(deep_model, arenas, kv_cache_tokens=320)
    monkeypatch.setattr(deep_model.decoder, "forward", fail)
    ends = last_events(ask(engine, arenas, [request, request], num_at_once=2))
    assert all(isinstance(end, Failed) for end in ends.values())
    assert ends.keys() == {"0", "1"}
    monkeypatch.setattr(deep_model.decoder, "forward", forward)
    events = ask(engine, arenas, [request])
    assert cached(events) == {0: 0}
    assert answers(events) == expected


def test_the_longest_unused_prompt_makes_room(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas, kv_cache_tokens=160)
    old, new = (text_request(70, 2, first) for first in (1, 2))
    ask(engine, arenas, [old, new])
    assert cached(ask(engine, arenas, [new]))[0] == 64
    assert cached(ask(engine, arenas, [text_request(90, 2, 3), new, old])) == {0: 0, 1: 64, 2: 0}
