"""Draws against a plain reference, and their promises about seeds."""

import math
import random

import pytest
import torch
from torch import Tensor

from workers.language import drawing
from workers.language.drawing import Draw, draw
from workers.sampling import Sampling


def make_sampling(
    temperature: float = 1.0,
    top_p: float = 1.0,
    top_k: int = 0,
    min_p: float = 0.0,
    seed: int = 0,
) -> Sampling:
    return Sampling(
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        min_p=min_p,
        seed=seed,
        max_tokens=1,
        stop_token_ids=(),
    )


def choose(logits: Tensor, draws: list[Draw]) -> list[int]:
    ids, best = draw(logits, draws)
    assert best.isfinite().all()
    return ids.tolist()


def kept_probabilities(logits: list[float], sampling: Sampling) -> dict[int, float]:
    """The distribution over the tokens that stay, computed one number at a time."""
    scores = {token: value / sampling.temperature for token, value in enumerate(logits)}
    if sampling.top_k:
        least = sorted(scores.values(), reverse=True)[: sampling.top_k][-1]
        scores = {token: score for token, score in scores.items() if score >= least}
    top = max(scores.values())
    total = sum(math.exp(score - top) for score in scores.values())
    mass = {token: math.exp(score - top) / total for token, score in scores.items()}
    kept: dict[int, float] = {}
    for token in sorted(mass, key=lambda token: -mass[token]):
        if kept and sum(kept.values()) >= sampling.top_p:
            break
        kept[token] = mass[token]
    least = sampling.min_p * max(kept.values())
    kept = {token: value for token, value in kept.items() if value >= least}
    return {token: value / sum(kept.values()) for token, value in kept.items()}


def draw_many(logits: list[float], sampling: Sampling, count: int) -> list[int]:
    rows = torch.tensor([logits] * count)
    return choose(rows, [Draw(sampling, index) for index in range(count)])


def random_logits(seed: int, rows: int, vocab: int) -> Tensor:
    return torch.randn(rows, vocab, generator=torch.Generator().manual_seed(seed)) * 2


SAMPLINGS = [
    make_sampling(),
    make_sampling(temperature=0.5),
    make_sampling(top_k=3),
    make_sampling(top_p=0.7),
    make_sampling(temperature=1.7, top_k=6, top_p=0.8),
    make_sampling(top_p=0.01),
    make_sampling(top_k=1),
    make_sampling(min_p=0.1),
    make_sampling(min_p=1.0),
    make_sampling(temperature=1.5, top_k=8, top_p=0.9, min_p=0.2),
    make_sampling(temperature=2.0, top_p=0.95, min_p=0.02),
]


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = random_logits(0, 32, 100)
    found = choose(logits, [Draw(make_sampling(0.0, seed=row), 0) for row in range(32)])
    assert found == logits.argmax(-1).tolist()


def test_lowest_id_wins_a_tie() -> None:
    logits = torch.zeros(2, 50)
    logits[0, [7, 30]] = 4.0
    assert choose(logits, [Draw(make_sampling(0.0), 0)] * 2) == [7, 0]


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_draws_follow_the_reference_distribution(sampling: Sampling) -> None:
    logits = random_logits(3, 1, 12)[0].tolist()
    count = 4000
    found = draw_many(logits, sampling, count)
    expected = kept_probabilities(logits, sampling)
    assert set(found) <= set(expected)
    # Chi squared; the bound is about six standard deviations above the mean.
    excess = sum(
        (found.count(token) - count * share) ** 2 / (count * share)
        for token, share in expected.items()
    )
    freedom = len(expected) - 1
    assert excess <= freedom + 6 * math.sqrt(2 * max(freedom, 1))


@pytest.mark.parametrize(
    ("top_p", "kept"), [(0.49, {0}), (0.51, {0, 1}), (0.79, {0, 1}), (0.81, {0, 1, 2})]
)
def test_top_p_keeps_the_fewest_that_reach_it(top_p: float, kept: set[int]) -> None:
    logits = [math.log(0.5), math.log(0.3), math.log(0.2)]
    assert set(draw_many(logits, make_sampling(top_p=top_p), 200)) == kept


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("is_coarse", [False, True])
def test_looking_at_the_best_first_changes_no_draw(
    monkeypatch: pytest.MonkeyPatch, sampling: Sampling, is_coarse: bool
) -> None:
    logits = random_logits(6, 60, 50)
    if is_coarse:
        logits = logits.round()  # many equals, also where the candidates end
    draws = [Draw(sampling, index) for index in range(60)]
    monkeypatch.setattr(drawing, "NUM_CANDIDATES", ())
    expected = choose(logits, draws)
    monkeypatch.setattr(drawing, "NUM_CANDIDATES", (3, 7))
    assert choose(logits, draws) == expected


def test_equals_of_the_kth_stay() -> None:
    found = draw_many([2.0, 1.0, 1.0, 0.0], make_sampling(top_k=2), 200)
    assert set(found) == {0, 1, 2}


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_cuts_equal_the_library(sampling: Sampling) -> None:
    from transformers import (
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    logits = random_logits(5, 1, 40)
    warped = TemperatureLogitsWarper(sampling.temperature)(None, logits)
    if sampling.top_k:
        warped = TopKLogitsWarper(sampling.top_k)(None, warped)
    if sampling.top_p < 1:
        warped = TopPLogitsWarper(sampling.top_p)(None, warped)
    if sampling.min_p:
        warped = MinPLogitsWarper(sampling.min_p)(None, warped)
    expected = set(warped[0].isfinite().nonzero()[:, 0].tolist())
    assert set(kept_probabilities(logits[0].tolist(), sampling)) == expected


def test_a_draw_does_not_depend_on_the_batch() -> None:
    chance = random.Random(1)
    logits = random_logits(1, 24, 64)
    draws = [
        Draw(
            make_sampling(
                chance.choice([0.0, 0.7, 1.3]),
                chance.choice([1.0, 0.9]),
                chance.choice([0, 5]),
                chance.choice([0.0, 0.05]),
                seed=chance.getrandbits(63),
            ),
            chance.randrange(100),
        )
        for _ in range(24)
    ]
    together = choose(logits, draws)
    alone = [choose(logits[row : row + 1], [draw])[0] for row, draw in enumerate(draws)]
    order = chance.sample(range(24), 24)
    shuffled = choose(logits[order], [draws[row] for row in order])
    assert alone == together
    assert [together[row] for row in order] == shuffled


def test_seed_and_index_change_the_draw() -> None:
    logits = torch.zeros(200, 1000)
    by_index = choose(logits, [Draw(make_sampling(seed=1), index) for index in range(200)])
    by_seed = choose(logits, [Draw(make_sampling(seed=seed), 0) for seed in range(200)])
    assert len(set(by_index)) > 150
    assert len(set(by_seed)) > 150


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_only_a_row_without_finite_maximum_is_shown_as_faulty(
    temperature: float, bad: float
) -> None:
    logits = random_logits(2, 3, 10)
    if bad > 0 or math.isnan(bad):
        logits[1, 4] = bad
    else:
        logits[1] = bad
    _, best = draw(logits, [Draw(make_sampling(temperature, top_p=0.9), 0)] * 3)
    assert best.isfinite().tolist() == [True, False, True]


def test_tiny_temperature_is_nearly_greedy() -> None:
    logits = random_logits(4, 8, 30) * 1000
    found = choose(logits, [Draw(make_sampling(1e-30, seed=row), 0) for row in range(8)])
    assert found == logits.argmax(-1).tolist()
