"""Engines with small limits, and what came out of them."""

from collections.abc import Sequence
from typing import Any

from tests.workers.language.models import LentArenas, Model, Request
from workers.features import ELSEWHERE, Home
from workers.language.engine import Engine
from workers.language.grammar import Grammars
from workers.messages import Failed, Finished, FromWorker, GenerateJob, Tokens, Vocabulary

NO_GRAMMARS = Grammars(Vocabulary((), ()), 768)


def make_engine(model: Model, arenas: LentArenas, **limits: Any) -> Engine:
    return make_engine_at(ELSEWHERE, model, arenas, **limits)


def make_engine_at(home: Home, model: Model, arenas: LentArenas, **limits: Any) -> Engine:
    defaults: dict[str, Any] = {
        "kv_cache_tokens": 8192,
        "kv_block_tokens": 16,
        "max_step_tokens": 2048,
        "max_step_sequences": 16,
        "max_context_tokens": 0,
        "prefix_cache": True,
        "digest_key": bytes(range(32)),
        "grammars": NO_GRAMMARS,
    }
    return Engine(model.decoder, model.layout, arenas, home=home, **(defaults | limits))


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


def run(engine: Engine, jobs: Sequence[GenerateJob], num_at_once: int) -> list[FromWorker]:
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


def text_request(num_tokens: int, max_tokens: int, first: int = 1) -> Request:
    ids = [(first + 7 * index) % 700 for index in range(num_tokens)]
    return Request(ids, [], [], [], [], max_tokens)


def last_events(events: list[FromWorker]) -> dict[str, Finished | Failed]:
    last = [event for event in events if isinstance(event, Finished | Failed)]
    assert len({event.job_id for event in last}) == len(last)
    return {event.job_id: event for event in last}


def drain(engine: Engine) -> list[FromWorker]:
    return run(engine, [], 1)
