"""Likelihoods of a prompt's own tokens, held to the library's logits of the same prompt."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.checkpoints import MODEL_TYPES
from tests.workers.language.conftest import KIMI
from tests.workers.language.engines import answers, last_events, make_engine, run, text_request
from tests.workers.language.models import (
    LentArenas,
    Model,
    Request,
    inputs_for_library,
    make_job,
    make_request,
    positions_for_library,
)
from tests.workers.language.wishes import make_wish
from workers.language import events, scoring
from workers.language.scheduler import Scheduler, Step
from workers.messages import (
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Scored,
    Started,
    Taken,
    Tokens,
)
from workers.sampling import Likelihood

TOLERANCE = 1e-3
NUM_TOP = 3


def scored_job(arenas: LentArenas, request: Request, job_id: str, **wish: Any) -> GenerateJob:
    asked = {"logprobs": True, "prompt_logprobs": True, "top_logprobs": NUM_TOP, "max_tokens": 4}
    return make_job(arenas, request, job_id, make_wish(**(asked | wish)))


def scores_of(found: Sequence[FromWorker], job_id: str) -> list[Likelihood]:
    mine = [event for event in found if getattr(event, "job_id", "") == job_id]
    kinds = [type(event) for event in mine if not isinstance(event, Finished | Tokens)]
    assert kinds[-1] is Started
    assert set(kinds[1:-1]) <= {Scored}
    assert all(len(e.likelihoods) <= events.MAX_SCORES for e in mine if isinstance(e, Scored))
    return [each for event in mine if isinstance(event, Scored) for each in event.likelihoods]


@torch.inference_mode()
def library_scores(model: Model, request: Request) -> Tensor:
    """Logarithms of probabilities of the token behind each, [tokens, vocab]."""
    inputs = inputs_for_library(model, request)
    positions = positions_for_library(model, inputs)
    logits: Tensor = model.library(**inputs, position_ids=positions, use_cache=False).logits[0]
    return logits.float().log_softmax(-1)


def is_librarys(
    model: Model, request: Request, scores: list[Likelihood], first_row: int = 0
) -> bool:
    """Whether these are what the library's rows say from `first_row` on."""
    rows = library_scores(model, request)[first_row:-1]
    ids = torch.tensor(request.token_ids[1:])
    assert len(scores) == len(ids)
    told = torch.tensor([each.logprob for each in scores])
    best = torch.tensor([[logprob for _, logprob in each.top] for each in scores])
    expected = rows.gather(1, ids[: len(rows), None])[:, 0]
    near = (told[: len(rows)] - expected).abs().max() < TOLERANCE
    near_best = (best[: len(rows)] - rows.topk(NUM_TOP).values).abs().max() < TOLERANCE
    return bool(near and near_best)


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({}, id="at once"),
        pytest.param({"max_step_tokens": 7, "kv_block_tokens": 4}, id="small steps"),
        pytest.param({"max_step_tokens": 1}, id="one by one"),
        pytest.param(
            {"kv_cache_tokens": 480, "max_context_tokens": 480, "kv_block_tokens": 8}, id="least"
        ),
    ],
)
@pytest.mark.parametrize("model", [*MODEL_TYPES, KIMI], indirect=True)
@pytest.mark.slow
def test_scores_are_the_librarys_alone_and_among_others(
    model: Model, limits: dict[str, int]
) -> None:
    arenas = LentArenas()
    requests = [make_request(model, 300 + number, number % 3) for number in range(9)]
    jobs = [
        scored_job(arenas, request, str(at)) if at % 3 else make_job(arenas, request, str(at))
        for at, request in enumerate(requests)
    ]
    engine = make_engine(model, arenas, **limits)
    for num_at_once in (1, 6):
        found = run(engine, jobs, num_at_once)
        for at, request in enumerate(requests):
            if at % 3:
                assert is_librarys(model, request, scores_of(found, str(at)))
            else:
                assert not scores_of(found, str(at))


def test_control_scores_of_the_row_beside_would_be_noticed(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = make_request(deep_model, 310, 2)
    found = run(make_engine(deep_model, arenas), [scored_job(arenas, request, "a")], 1)
    assert is_librarys(deep_model, request, scores_of(found, "a"))
    assert not is_librarys(deep_model, request, scores_of(found, "a"), first_row=1)


def test_a_prompt_that_is_known_is_scored_whole_and_lends_its_blocks(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = make_request(deep_model, 311, 2)
    engine = make_engine(deep_model, arenas, kv_block_tokens=4)
    plain = make_wish(max_tokens=4)
    jobs = [
        make_job(arenas, request, "before", plain),
        scored_job(arenas, request, "scored"),
        make_job(arenas, request, "after", plain),
    ]
    found = run(engine, jobs, 1)
    assert is_librarys(deep_model, request, scores_of(found, "scored"))
    cached = {each.job_id: each.num_cached_tokens for each in found if isinstance(each, Started)}
    num_known = (request.num_tokens - 1) // 4 * 4
    assert cached == {"before": 0, "scored": 0, "after": num_known}
    told = answers(found)
    assert told["before"] == told["scored"] == told["after"]


@pytest.mark.slow
def test_a_prompt_that_gives_way_is_told_of_once(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [text_request(20, 60), text_request(120, 20, first=2), text_request(90, 9, first=3)]
    jobs = [
        scored_job(arenas, each, str(at), max_tokens=each.max_tokens)
        for at, each in enumerate(requests)
    ]
    interrupted: set[int] = set()  # how much was told of prompts that were interrupted
    pick = Scheduler.pick

    def noting(scheduler: Scheduler) -> Step | None:
        step = pick(scheduler)
        interrupted.update(each.num_scored_tokens for each in scheduler if not each.is_running)
        return step

    monkeypatch.setattr(Scheduler, "pick", noting)
    limits = {"kv_cache_tokens": 148, "max_step_tokens": 8, "kv_block_tokens": 4}
    found = run(make_engine(deep_model, arenas, **limits), jobs, 3)
    assert interrupted - {0, 19, 119, 89}, "none was interrupted while it was read"
    assert interrupted & {19, 119, 89}, "none was interrupted in its answer"
    for at, request in enumerate(requests):
        assert is_librarys(deep_model, request, scores_of(found, str(at)))


def test_no_more_logits_are_held_than_may_be(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    num_rows: list[int] = []
    logits = deep_model.decoder.logits

    def counting(hidden: Tensor) -> Tensor:
        num_rows.append(len(hidden))
        return logits(hidden)

    monkeypatch.setattr(deep_model.decoder, "logits", counting)
    monkeypatch.setattr(scoring, "MAX_LOGIT_BYTES", 4 * deep_model.decoder.vocab_size * 10)
    request = text_request(301, 1)
    found = run(make_engine(deep_model, arenas), [scored_job(arenas, request, "a")], 1)
    assert is_librarys(deep_model, request, scores_of(found, "a"))
    assert num_rows[:30] == [10] * 30
    assert set(num_rows[30:]) == {1}


@pytest.mark.parametrize("scores", [True, False])
def test_without_an_answer_a_prompt_may_fill_the_context(
    deep_model: Model, arenas: LentArenas, scores: bool
) -> None:
    engine = make_engine(deep_model, arenas, kv_cache_tokens=64)
    jobs = [
        scored_job(arenas, text_request(64, 0), "full", max_tokens=0, prompt_logprobs=scores),
        scored_job(arenas, text_request(64, 1), "one more", max_tokens=1),
        scored_job(arenas, text_request(1, 0), "short", max_tokens=0, prompt_logprobs=scores),
    ]
    found = run(engine, jobs, 1)
    assert len(scores_of(found, "full")) == 63 * scores
    assert not scores_of(found, "short")
    assert not [event for event in found if isinstance(event, Tokens)]
    ends = last_events(found)
    for job, num_tokens in (("full", 64), ("short", 1)):
        assert ends[job] == Finished(
            job_id=job, reason="length", num_prompt_tokens=num_tokens, num_completion_tokens=0
        )
    refused = ends["one more"]
    assert isinstance(refused, Failed)
    assert refused.kind == "bad_input"


def test_what_stops_an_answer_is_told_with_its_likelihood(
    deep_model: Model, arenas: LentArenas
) -> None:
    request = text_request(20, 1)
    (first,) = answers(run(make_engine(deep_model, arenas), [make_job(arenas, request, "a")], 1))[
        "a"
    ]
    job = scored_job(arenas, request, "a", stop_token_ids=(first,))
    end = last_events(run(make_engine(deep_model, arenas), [job], 1))["a"]
    assert isinstance(end, Finished)
    assert end.stop is not None
    row = library_scores(deep_model, request)[-1]
    assert end.stop[0] == first
    assert end.stop[1].logprob == pytest.approx(row[first].item(), abs=TOLERANCE)


def test_a_prompt_of_no_finite_scores_fails_alone(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits = deep_model.decoder.logits

    def spoil(hidden: Tensor) -> Tensor:
        found = logits(hidden)
        if len(found) == request.num_tokens - 1:
            found[5, 0] = math.nan
        return found

    request = text_request(30, 3)
    jobs = [scored_job(arenas, request, "bad"), make_job(arenas, request, "good")]
    monkeypatch.setattr(deep_model.decoder, "logits", spoil)
    found = run(make_engine(deep_model, arenas), jobs, 2)
    ends = last_events(found)
    told = [type(event) for event in found if getattr(event, "job_id", "") == "bad"]
    assert told == [Taken, Failed]
    bad = ends["bad"]
    assert isinstance(bad, Failed)
    assert bad.kind == "not_finite"
    assert isinstance(ends["good"], Finished)
