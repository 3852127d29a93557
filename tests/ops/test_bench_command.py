"""The command: what it accepts, what it writes, and which exit status it gives."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ops.bench.__main__ import parse_arguments, parse_target, with_overrides
from ops.bench.client import Target
from ops.bench.images import Size
from ops.bench.workload import WORKLOADS
from tests.ops.bench_server import BREAKS_OFF, INSTANT, running_server

TARGET = "server=http://127.0.0.1:1/v1,m"


def run_command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "ops.bench", *arguments]
    root = Path(__file__).parents[2]
    return subprocess.run(
        command, cwd=root, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_target_is_parsed_with_its_options() -> None:
    assert parse_target("a=http://127.0.0.1:1/v1/,dir/m,plain,pid=12") == Target(
        "a", "http://127.0.0.1:1/v1", "dir/m", plain=True, pid=12
    )
    assert parse_target(TARGET) == Target("server", "http://127.0.0.1:1/v1", "m")


@pytest.mark.parametrize(
    "text",
    ["", "a", "a=http://h/v1", "a=http://h,m", "=http://h/v1,m", f"{TARGET},x", f"{TARGET},pid=x"],
)
def test_a_wrong_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_target(text)


def test_overrides_change_what_they_name_and_nothing_else() -> None:
    arguments = parse_arguments(
        ["W2", "--target", TARGET, "--images", "none", "--rate", "2.5", "--rounds", "9"]
    )
    changed = with_overrides(WORKLOADS["W2"], arguments)
    assert (changed.images, changed.requests_per_second, changed.num_rounds) == ((), 2.5, 9)
    assert changed.concurrency == WORKLOADS["W2"].concurrency
    assert with_overrides(WORKLOADS["W3"], parse_arguments(["--target", TARGET])) == WORKLOADS["W3"]
    assert WORKLOADS["W2"].images == (Size(640, 480),)


def test_an_unknown_workload_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["W9", "--target", TARGET])
    assert "no workload W9" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_compares_two_targets_and_writes_json(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    small = ("--images", "1x24x18", "--rounds", "2", "--requests", "2", "--warmup", "1")
    with running_server() as server:
        fast = f"fast={server.base_url},{INSTANT}"
        slow = f"slow={server.base_url},model"
        done = run_command(
            "W1", "W4", "--target", fast, "--target", slow, "--json", str(file), *small
        )
    assert done.returncode == 0, done.stderr
    report = json.loads(file.read_text())["workloads"]
    assert list(report) == ["W1", "W4"]
    assert report["W1"]["ratios"]["fast/slow"]["first_token_p50"]["max"] < 1
    assert report["W1"]["targets"]["slow"]["counters"] == {"bench_images_encoded_total": 8.0}
    assert "| W4 | fast/slow |" in done.stdout


@pytest.mark.slow
def test_two_runs_send_different_images() -> None:
    once = ("--images", "1x24x18", "--rounds", "1", "--requests", "1", "--warmup", "0")
    with running_server() as server:
        for _ in range(2):
            run_command("W1", "--target", f"server={server.base_url},{INSTANT}", *once)
        urls = {body["messages"][0]["content"][0]["image_url"]["url"] for body in server.log.bodies}
    assert len(server.log.bodies) == len(urls) == 2


@pytest.mark.slow
def test_failed_requests_fail_the_command() -> None:
    once = ("--images", "none", "--rounds", "1", "--requests", "2")
    with running_server() as server:
        target = f"server={server.base_url},{BREAKS_OFF}"
        measured = run_command("W1", "--target", target, *once, "--warmup", "0")
        refused = run_command("W1", "--target", target, *once, "--warmup", "1")
    assert measured.returncode == 1
    assert "without a finish_reason" in measured.stdout
    assert "failed in the warm-up" in refused.stderr
