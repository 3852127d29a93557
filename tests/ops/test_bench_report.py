"""Figures of a report: percentiles of known times, ratios within rounds, disturbance left out."""

from typing import Any

import pytest

from ops.bench.client import Answer, Failure, Outcome
from ops.bench.report import make_report, summarise
from ops.bench.rounds import Round
from ops.bench.table import to_markdown


def answer(first: float, total: float, num_tokens: int = 5) -> Answer:
    return Answer(
        first_token_seconds=first,
        total_seconds=total,
        gaps_seconds=(0.25,),
        num_tokens=num_tokens,
        num_chunks=2,
        num_prompt_tokens=11,
        has_usage=True,
        finish_reason="length",
    )


def one_round(
    target: str, turn: int, *outcomes: Outcome, wall: float = 2.0, foreign: float | None = 0.0
) -> Round:
    return Round(target, turn, outcomes, wall, 0.1, {"server (1)": 0.6}, foreign)


def test_percentiles_are_those_of_the_times_given() -> None:
    hundred = [answer(first=number / 100, total=2.0) for number in range(1, 101)]
    summary = summarise([one_round("a", 0, *hundred)])
    figures = [summary[f"first_token_p{percent}"] for percent in (50, 90, 99)]
    assert figures == pytest.approx([0.505, 0.901, 0.9901])
    assert summary["total_p50"] == summary["total_p99"] == 2.0


def test_inter_token_time_is_by_token_not_by_chunk() -> None:
    summary = summarise([one_round("a", 0, answer(first=1.0, total=1.8, num_tokens=5))])
    assert summary["inter_token_p50"] == pytest.approx(0.2)
    assert summary["gap_p50"] == 0.25


def test_an_answer_of_one_token_has_no_inter_token_time() -> None:
    summary = summarise([one_round("a", 0, answer(first=1.0, total=1.0, num_tokens=1))])
    assert summary["inter_token_p50"] is None


def test_throughput_counts_answers_and_not_failures() -> None:
    outcomes = (answer(1.0, 2.0), answer(1.0, 2.0), Failure("500"), Failure("500"))
    summary = summarise([one_round("a", 0, *outcomes, wall=4.0)])
    assert summary["requests_per_second"] == 0.5
    assert summary["tokens_per_second"] == 2.5
    assert (summary["num_answers"], summary["num_failures"]) == (2, 2)
    assert summary["failures"] == {"500": 2}
    assert summary["server_cpu_seconds_per_request"] == {"server (1)": pytest.approx(0.15)}


def pair_of_rounds(foreign_in_last: float) -> dict[str, Any]:
    """Target a takes half of b's time in turn 0, a quarter in turn 1, ten times it in turn 2."""
    rounds = [
        one_round("a", 0, answer(0.5, 1.0)),
        one_round("b", 0, answer(1.0, 1.0)),
        one_round("b", 1, answer(2.0, 4.0)),
        one_round("a", 1, answer(0.5, 4.0)),
        one_round("a", 2, answer(10.0, 20.0)),
        one_round("b", 2, answer(1.0, 2.0), foreign=foreign_in_last),
    ]
    return make_report(rounds, max_foreign_cores=0.15, counters={"a": {"hits_total": 3.0}})


def test_ratios_are_taken_round_by_round() -> None:
    report = pair_of_rounds(foreign_in_last=0.0)
    ratio = report["ratios"]["a/b"]["first_token_p50"]
    assert ratio == {"median": 0.5, "min": 0.25, "max": 10.0}


def test_a_round_disturbed_for_one_target_is_left_out_for_all() -> None:
    report = pair_of_rounds(foreign_in_last=0.4)
    assert (report["num_rounds_kept"], report["num_rounds_disturbed"]) == (2, 1)
    assert report["ratios"]["a/b"]["first_token_p50"]["max"] == 0.5
    assert report["targets"]["a"]["summary"]["num_answers"] == 2
    assert [each["kept"] for each in report["targets"]["a"]["rounds"]] == [True, True, False]


def test_an_unwatched_round_is_kept_and_the_report_says_so() -> None:
    report = make_report([one_round("a", 0, answer(1.0, 2.0), foreign=None)], 0.15, {})
    assert report["num_rounds_kept"] == 1
    assert not report["watched"]
    assert "nobody watched" in to_markdown({"W1": report})


def test_a_run_without_a_quiet_round_still_makes_a_table() -> None:
    report = make_report([one_round("a", 0, answer(1.0, 2.0), foreign=1.0)], 0.15, {})
    assert report["targets"]["a"]["summary"]["first_token_p50"] is None
    assert "| W1 | a | 0/0 |" in to_markdown({"W1": report})


def test_the_table_shows_milliseconds_ratios_failures_and_counters() -> None:
    rounds = [one_round("a", 0, answer(0.0125, 0.5), Failure("503 busy")),
              one_round("b", 0, answer(0.05, 0.5))]  # fmt: skip
    counters = {"a": {"hits_total": 3.0, "misses_total": 0.0}}
    table = to_markdown({"W1": make_report(rounds, 0.15, counters)})
    assert "| W1 | a | 1/1 |" in table
    assert "12.5 (12.5..12.5)" in table
    assert "| W1 | a/b | 1.00 (1.00..1.00) | 0.25 (0.25..0.25)" in table
    assert "W1 a: 1 x 503 busy" in table
    assert "W1 a counted: hits_total 3\n" in table + "\n"
