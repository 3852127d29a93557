"""What it amounts to: the rounds of one workload in, one JSON-ready report out.

Only ratios within a round are worth comparing: both sides then had the same requests and
nearly the same minute of the machine.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from ops.bench.client import Answer, Failure, Outcome
from ops.bench.rounds import Round

PERCENTILES = (50, 90, 99)

# What a ratio between two targets is taken of.
COMPARED = (
    "requests_per_second",
    "tokens_per_second",
    "first_token_p50",
    "first_token_p90",
    "inter_token_p50",
    "total_p50",
    "total_p90",
)

Summary = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over the kept rounds."""

    median: float
    min: float
    max: float


def make_report(
    rounds: Sequence[Round], max_foreign_cores: float, counters: Mapping[str, Mapping[str, float]]
) -> Summary:
    """All targets over the kept rounds, each round, and the ratios of every pair of targets."""
    disturbed = disturbed_turns(rounds, max_foreign_cores)
    kept = [each for each in rounds if each.turn not in disturbed]
    names = list(dict.fromkeys(each.target for each in rounds))
    return {
        "num_rounds_kept": len({each.turn for each in kept}),
        "num_rounds_disturbed": len(disturbed),
        "watched": all(each.foreign_cores is not None for each in rounds),
        "targets": {
            name: {
                "summary": summarise([each for each in kept if each.target == name]),
                "spread": spreads([each for each in kept if each.target == name]),
                "counters": dict(counters.get(name, {})),
                "rounds": [_one_round(each, disturbed) for each in rounds if each.target == name],
            }
            for name in names
        },
        "ratios": {
            f"{first}/{second}": ratios(kept, first, second)
            for first, second in combinations(names, 2)
        },
    }


def disturbed_turns(rounds: Iterable[Round], max_foreign_cores: float) -> frozenset[int]:
    """The turns in which others used too much of the machine for any target.

    They are left out for all targets, or the pairs would break. An unwatched round is kept.
    """
    return frozenset(
        each.turn
        for each in rounds
        if each.foreign_cores is not None and each.foreign_cores > max_foreign_cores
    )


def summarise(rounds: Sequence[Round]) -> Summary:
    """The figures of one target over these rounds together; times in seconds.

    `first_token`, `inter_token` (mean of one answer), `gap` (between chunks) and `total` come
    with percentiles; a percentile of nothing is None.
    """
    outcomes = [outcome for each in rounds for outcome in each.outcomes]
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    wall_seconds = sum(each.wall_seconds for each in rounds)
    num_tokens = sum(answer.num_tokens for answer in answers)
    return {
        "num_answers": len(answers),
        "num_failures": len(outcomes) - len(answers),
        "failures": _failures(outcomes),
        "wall_seconds": wall_seconds,
        "requests_per_second": len(answers) / wall_seconds if rounds else None,
        "tokens_per_second": num_tokens / wall_seconds if rounds else None,
        **_percentiles("first_token", [answer.first_token_seconds for answer in answers]),
        **_percentiles("inter_token", _inter_token_seconds(answers)),
        **_percentiles("gap", [gap for answer in answers for gap in answer.gaps_seconds]),
        **_percentiles("total", [answer.total_seconds for answer in answers]),
        **_means(answers),
        "finish_reasons": dict(Counter(answer.finish_reason for answer in answers)),
        "client_cpu_seconds_per_request": _per_request(
            sum(each.client_seconds for each in rounds), outcomes
        ),
        "server_cpu_seconds_per_request": _server_seconds_per_request(rounds, outcomes),
    }


def _inter_token_seconds(answers: Iterable[Answer]) -> list[float]:
    # By answer, not by chunk: servers that send several tokens in one chunk compare as well.
    return [
        (answer.total_seconds - answer.first_token_seconds) / (answer.num_tokens - 1)
        for answer in answers
        if answer.num_tokens > 1
    ]


def _percentiles(name: str, values: Sequence[float]) -> dict[str, float | None]:
    if not values:
        return {f"{name}_p{percent}": None for percent in PERCENTILES}
    figures = np.percentile(np.asarray(values), PERCENTILES)
    return {
        f"{name}_p{percent}": float(figure)
        for percent, figure in zip(PERCENTILES, figures, strict=True)
    }


def _means(answers: Sequence[Answer]) -> dict[str, float | bool | None]:
    if not answers:
        return dict.fromkeys(("tokens_mean", "chunks_mean", "prompt_tokens_mean", "has_usage"))
    return {
        "tokens_mean": float(np.mean([answer.num_tokens for answer in answers])),
        # Fewer chunks than tokens: the server joins tokens or holds text back.
        "chunks_mean": float(np.mean([answer.num_chunks for answer in answers])),
        "prompt_tokens_mean": float(np.mean([answer.num_prompt_tokens for answer in answers])),
        "has_usage": all(answer.has_usage for answer in answers),
    }


def _failures(outcomes: Iterable[Outcome]) -> dict[str, int]:
    return dict(Counter(each.reason for each in outcomes if isinstance(each, Failure)))


def _per_request(seconds: float, outcomes: Sequence[Outcome]) -> float | None:
    return seconds / len(outcomes) if outcomes else None


def _server_seconds_per_request(
    rounds: Iterable[Round], outcomes: Sequence[Outcome]
) -> dict[str, float]:
    totals: dict[str, float] = {}
    for each in rounds:
        for process, seconds in each.server_seconds.items():
            totals[process] = totals.get(process, 0.0) + seconds
    return {process: seconds / len(outcomes) for process, seconds in totals.items() if outcomes}


def _one_round(each: Round, disturbed: frozenset[int]) -> Summary:
    return {
        "turn": each.turn,
        "kept": each.turn not in disturbed,
        "foreign_cores": each.foreign_cores,
        **summarise([each]),
    }


def spreads(rounds: Sequence[Round]) -> dict[str, Summary]:
    """Median, least and most of each compared figure over these rounds of one target."""
    summaries = [summarise([each]) for each in rounds]
    return {
        key: asdict(_spread(values))
        for key in COMPARED
        if (values := [each[key] for each in summaries if each[key]])
    }


def ratios(rounds: Sequence[Round], first: str, second: str) -> dict[str, Summary]:
    """First target's figure over the second's, round by round, for each compared figure."""
    by_turn: dict[int, dict[str, Summary]] = {}
    for each in rounds:
        by_turn.setdefault(each.turn, {})[each.target] = summarise([each])
    pairs = [(turn[first], turn[second]) for turn in by_turn.values()]
    return {
        key: asdict(_spread(values))
        for key in COMPARED
        if (values := [one[key] / other[key] for one, other in pairs if one[key] and other[key]])
    }


def _spread(values: Sequence[float]) -> Spread:
    return Spread(float(np.median(values)), min(values), max(values))
