"""Two gateways on one checkpoint, one that defers and one that does not, for a `with` block."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from ops.bench.client import Target

MODULES = {"eager": "ops.bench.deferral.serve_eager", "deferred": "gateway"}
MODEL_NAME = "m"
READY = re.compile(r"Fovea is ready .* to (http://[^/]+)/")
STAGE = re.compile(r'^fovea_stage_seconds_sum\{stage="(\w+)"\} (\S+)$', re.MULTILINE)
START_SECONDS = 300.0
STOP_SECONDS = 30.0


def owners_setting(num_owners: int) -> str:
    """FOVEA_WORKERS for so many owners, one of which is the engine as well."""
    return ",".join(["cpu:vision+language", *["cpu:vision"] * (num_owners - 1)])


@contextmanager
def both(model: Path, num_owners: int) -> Iterator[list[Target]]:
    """Both gateways, each with its own workers of one thread; idle ones take no time."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(_running(name, module, model, num_owners))
            for name, module in MODULES.items()
        ]


@contextmanager
def _running(name: str, module: str, model: Path, num_owners: int) -> Iterator[Target]:
    environment = {key: value for key, value in os.environ.items() if "FOVEA_" not in key} | {
        "FOVEA_PORT": "0",
        "FOVEA_MODEL": str(model),
        "FOVEA_SERVED_MODEL_NAME": MODEL_NAME,
        "FOVEA_WORKERS": owners_setting(num_owners),
        "FOVEA_THREADS_PER_WORKER": "1",
        "FOVEA_LOG_LEVEL": "warning",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", module], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Target(name, _address(process) + "/v1", MODEL_NAME, pid=process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_SECONDS)


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if found := READY.search(line):
            return found[1]
    raise SystemExit(f"a gateway did not start; it ended with {process.wait()}")


def stage_seconds(target: Target) -> dict[str, float]:
    """Seconds that a gateway has counted for each stage since it started, over all images."""
    url = target.base_url.removesuffix("/v1") + "/metrics"
    text = httpx.get(url, trust_env=False).text
    return {stage: float(value) for stage, value in STAGE.findall(text)}


def answer(target: Target, body: bytes) -> str:
    """The text of one streamed answer."""
    url = f"{target.base_url}/chat/completions"
    response = httpx.post(
        url,
        content=body,
        headers={"Content-Type": "application/json"},
        timeout=START_SECONDS,
        trust_env=False,
    )
    response.raise_for_status()
    return "".join(re.findall(r'"content":"((?:[^"\\]|\\.)*)"', response.text))
