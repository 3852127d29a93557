"""Names by Prometheus' rules; alerts that fire, and that the runbook explains."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from gateway.observe.metrics import Metrics
from gateway.observe.serving_names import add_serving_names

OBSERVE = Path(__file__).parent.parent.parent / "ops" / "observe"
RULES = Path(__file__).parent / "alerts_test.yml"
NOT_BASE_UNITS = {"milliseconds", "ms", "minutes", "kilobytes", "megabytes", "mib", "percent"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool")


def promtool(*arguments: str, stdin: bytes = b"") -> tuple[int, str]:
    """Exit status and all that it says."""
    done = subprocess.run(["promtool", *arguments], input=stdin, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


def faults(metrics: Metrics) -> list[str]:
    """What Prometheus' rules for names would blame, as far as it needs no promtool."""
    found = []
    for metric in metrics.registry.collect():
        words = metric.name.split("_")
        if not re.fullmatch(r"(fovea|process)_[a-z_]*[a-z]", metric.name):
            found.append(f"{metric.name}: form")
        if NOT_BASE_UNITS & set(words):
            found.append(f"{metric.name}: unit")
        if metric.type == "histogram" and words[-1] != "seconds":
            found.append(f"{metric.name}: a histogram without its unit at the end")
        if metric.type == "gauge" and words[-1] in ("total", "count", "sum", "bucket"):
            found.append(f"{metric.name}: a gauge that is named like something else")
    return found


def alert_names() -> list[str]:
    return re.findall(r"- alert: (\w+)", (OBSERVE / "alerts.yml").read_text())


def test_names_and_units_are_those_of_prometheus() -> None:
    assert faults(Metrics(("worker-0",))) == []


def test_a_wrong_name_is_found() -> None:
    metrics = Metrics()
    metrics._gauge("fovea_wait_ms", "Wrong.")
    metrics._gauge("fovea_things_count", "Wrong.")
    assert len(faults(metrics)) == 2


@needs_promtool
def test_promtool_finds_no_fault_with_our_names() -> None:
    assert promtool("check", "metrics", stdin=generate_latest(Metrics(("w",)).registry)) == (0, "")


@needs_promtool
def test_promtool_remarks_on_nothing_but_the_colons_of_the_serving_names() -> None:
    metrics = Metrics(("w",))
    add_serving_names(metrics, "m")
    _, said = promtool("check", "metrics", stdin=generate_latest(metrics.registry))
    assert said.splitlines()
    assert all("should not contain ':'" in line for line in said.splitlines())


def test_the_runbook_explains_every_alert_and_no_other() -> None:
    runbook = (OBSERVE / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Fovea\w+)` \|", runbook, re.MULTILINE) == alert_names()


@needs_promtool
def test_every_alert_fires_when_it_should_and_not_before() -> None:
    tested = set(re.findall(r"alertname: (\w+)", RULES.read_text()))
    assert tested == set(alert_names())
    status, said = promtool("test", "rules", str(RULES))
    assert status == 0, said
