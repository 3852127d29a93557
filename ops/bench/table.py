"""For people: reports by workload in, Markdown tables out."""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

LOADS = (
    "| load | target | ok/failed | req/s | out tok/s | first token p50 | first token p90 "
    "| inter-token p50 | total p50 | total p90 | prompt tokens | chunks/tokens | CPU ms/req "
    "| others' cores |"
)
RATIOS = "| load | ratio | req/s | first token p50 | inter-token p50 | total p50 | rounds |"
RATIO_KEYS = ("requests_per_second", "first_token_p50", "inter_token_p50", "total_p50")


def to_markdown(reports: Mapping[str, Mapping[str, Any]]) -> str:
    """Two tables, loads and ratios, then what failed and what the servers counted.

    Times are milliseconds: the median over the kept rounds, (least..most) of them.
    """
    lines = [LOADS, _rule(LOADS)]
    for load, report in reports.items():
        lines += [_load_row(load, name, target) for name, target in report["targets"].items()]
    if any(report["ratios"] for report in reports.values()):
        lines += ["", RATIOS, _rule(RATIOS)]
    for load, report in reports.items():
        lines += [_ratio_row(load, pair, report) for pair in report["ratios"]]
    return "\n".join([*lines, *_remarks(reports)])


def _rule(header: str) -> str:
    return "|" + "---|" * (header.count("|") - 1)


def _load_row(load: str, name: str, target: Mapping[str, Any]) -> str:
    summary, spread = target["summary"], target["spread"]
    foreign = [each["foreign_cores"] for each in target["rounds"]]
    cells = (
        load,
        name,
        f"{summary['num_answers']}/{summary['num_failures']}",
        _span(spread.get("requests_per_second"), _figure),
        _span(spread.get("tokens_per_second"), _figure),
        _span(spread.get("first_token_p50"), _milliseconds),
        _span(spread.get("first_token_p90"), _milliseconds),
        _span(spread.get("inter_token_p50"), _milliseconds),
        _span(spread.get("total_p50"), _milliseconds),
        _span(spread.get("total_p90"), _milliseconds),
        _figure(summary["prompt_tokens_mean"]),
        f"{_figure(summary['chunks_mean'])}/{_figure(summary['tokens_mean'])}",
        _milliseconds(sum(summary["server_cpu_seconds_per_request"].values()) or None),
        "-" if None in foreign else f"{statistics.median(foreign):.2f}",
    )
    return "| " + " | ".join(cells) + " |"


def _ratio_row(load: str, pair: str, report: Mapping[str, Any]) -> str:
    spreads = report["ratios"][pair]
    figures = (_span(spreads.get(key), "{:.2f}".format) for key in RATIO_KEYS)
    kept = f"{report['num_rounds_kept']} kept, {report['num_rounds_disturbed']} disturbed"
    return "| " + " | ".join((load, pair, *figures, kept)) + " |"


def _span(spread: Mapping[str, float] | None, show: Callable[[float], str]) -> str:
    if spread is None:
        return "-"
    return f"{show(spread['median'])} ({show(spread['min'])}..{show(spread['max'])})"


def _figure(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.0f}" if seconds >= 0.1 else f"{seconds * 1e3:.1f}"


def _remarks(reports: Mapping[str, Mapping[str, Any]]) -> list[str]:
    remarks: list[str] = []
    for load, report in reports.items():
        if not report["watched"]:
            remarks.append(f"{load}: nobody watched the machine; give each target a pid")
        for name, target in report["targets"].items():
            remarks += [
                f"{load} {name}: {count} x {reason}"
                for reason, count in target["summary"]["failures"].items()
            ]
            grown = {key: value for key, value in target["counters"].items() if value}
            if grown:
                counted = ", ".join(f"{key} {value:g}" for key, value in grown.items())
                remarks.append(f"{load} {name} counted: {counted}")
    return ["", *remarks] if remarks else []
