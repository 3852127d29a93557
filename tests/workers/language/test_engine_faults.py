"""Faults while computing end what they must and nothing else."""

import logging
import math
from dataclasses import replace

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
    make_job,
    make_request,
)
from workers.messages import (
    Failed,
    Tokens,
)


def test_fault_in_a_step_ends_its_sequences_only(
    deep_model: Model,
    arenas: LentArenas,
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
    deep_model: Model, arenas: LentArenas
) -> None:
    request = make_request(deep_model, 15, 1)
    poison = replace(request, embeddings=[request.embeddings[0] * math.nan])
    engine = make_engine(deep_model, arenas, kv_cache_tokens=400)
    jobs = [make_job(arenas, each, name) for name, each in (("a", request), ("nan", poison))]
    events = run(engine, jobs, 2)
    bad = last_events(events)["nan"]
    assert isinstance(bad, Failed)
    assert bad.kind == "not_finite"
    good = [make_job(arenas, request, str(index)) for index in range(5)]
    events += run(engine, good, 5)
    expected = generate(deep_model, request)
    found = answers([event for event in events if event != bad])
    assert found == dict.fromkeys(("a", "0", "1", "2", "3", "4"), expected)


@pytest.mark.slow
def test_poison_of_an_aborted_prompt_does_not_spread(deep_model: Model, arenas: LentArenas) -> None:
    request = make_request(deep_model, 16, 2)
    poison = replace(request, embeddings=[each * math.nan for each in request.embeddings])
    engine = make_engine(deep_model, arenas, kv_cache_tokens=160, max_step_tokens=32)
    engine.put(make_job(arenas, poison, "nan"))
    for _ in range(3):  # part of the images is computed, no token chosen yet
        assert not any(isinstance(event, Tokens) for event in engine.step())
    engine.abort("nan")
    engine.put(make_job(arenas, request, "a"))
    assert answers(drain(engine))["a"] == generate(deep_model, request)


@pytest.mark.parametrize("beside", [0, 1, 40])
def test_only_what_is_too_large_by_itself_ends_when_memory_is_short(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    """`beside` tokens of another answer than the large prompt's are what fits at once."""
    embed = deep_model.decoder.embed

    def embed_few(ids: Tensor) -> Tensor:
        if ids.numel() > 50 + beside:
            raise torch.OutOfMemoryError("tried to allocate")
        return embed(ids)

    monkeypatch.setattr(deep_model.decoder, "embed", embed_few)
    sizes = {"a": 48, "large": 120, "b": 31, "c": 25}
    requests = {name: text_request(size, 5, size) for name, size in sizes.items()}
    engine = make_engine(deep_model, arenas)
    jobs = [make_job(arenas, request, name) for name, request in requests.items()]
    events = run(engine, jobs, 4)
    bad = last_events(events)["large"]
    assert isinstance(bad, Failed)
    assert bad.kind == "out_of_memory"
    del requests["large"]
    monkeypatch.setattr(deep_model.decoder, "embed", embed)
    wanted = {name: generate(deep_model, request) for name, request in requests.items()}
    assert answers([event for event in events if event != bad]) == wanted


def test_what_shares_blocks_that_could_not_be_computed_ends_too(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = deep_model.decoder.embed

    def embed_few(ids: Tensor) -> Tensor:
        if ids.numel() > 50:
            raise torch.OutOfMemoryError("tried to allocate")
        return embed(ids)

    engine = make_engine(deep_model, arenas)
    request = text_request(80, 5)
    monkeypatch.setattr(deep_model.decoder, "embed", embed_few)
    for name in ("large", "same"):
        engine.put(make_job(arenas, request, name))
    engine.put(make_job(arenas, text_request(30, 5, 3), "other"))
    ends = last_events(drain(engine))
    assert {name: getattr(end, "kind", "") for name, end in ends.items()} == {
        "large": "out_of_memory",
        "same": "out_of_memory",
        "other": "",
    }
    monkeypatch.setattr(deep_model.decoder, "embed", embed)
    engine.put(make_job(arenas, request, "again"))
    assert answers(drain(engine))["again"] == generate(deep_model, request)


def test_lost_device_is_passed_on(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(ids: Tensor) -> Tensor:
        raise torch.AcceleratorError("device lost")

    engine = make_engine(deep_model, arenas)
    engine.put(make_job(arenas, text_request(20, 4), "a"))
    monkeypatch.setattr(deep_model.decoder, "embed", fail)
    with pytest.raises(torch.AcceleratorError):
        engine.step()
