"""A real gateway on a free port, with real workers, for the length of a `with` block."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import openai
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parent.parent.parent
_READY = re.compile(r"Fovea is ready after .* for the model '(.*)' to (http://[^/]+)/")


@dataclass
class Server:
    """A running gateway. `lines` are what its processes have written so far.

    `key` is what it is asked with; without a file of keys, any will do.
    """

    process: subprocess.Popen[str]
    url: str
    model: str
    lines: list[str] = field(default_factory=list)
    key: str = "none"

    @cached_property
    def client(self) -> Any:
        """The official client, without its own retries; untyped, to send what its types forbid."""
        return self.client_of(self.key)

    def client_of(self, key: str) -> Any:
        """The same with another key, to be closed by who asks for it."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def async_client(self) -> Any:
        """The official asynchronous client, to be closed by who asks for it."""
        return openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)

    def post(self, body: object, key: str = "") -> httpx.Response:
        """POST to the chat route without the client's own checks."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        url = f"{self.url}/v1/chat/completions"
        return httpx.post(url, json=body, timeout=60, headers=headers)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels."""
        headers = {"authorization": f"Bearer {self.key}"}
        text = httpx.get(f"{self.url}/metrics", headers=headers).text
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def wait_for(self, name: str, value: float, seconds: float = 10, **labels: str) -> None:
        """Return once a metric has this value; fail when it does not come to it."""
        limit = time.monotonic() + seconds
        while (seen := self.metric(name, **labels)) != value:
            assert time.monotonic() < limit, f"{name} stayed at {seen}, not {value}"
            time.sleep(0.02)

    def wait_ready(self, seconds: float = 60) -> None:
        """Return once /ready says 200."""
        limit = time.monotonic() + seconds
        while httpx.get(f"{self.url}/ready").status_code != 200:
            assert time.monotonic() < limit, "the gateway is not ready"
            time.sleep(0.02)

    def workers(self) -> list[int]:
        """Process ids of the gateway's children."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def stop(self, seconds: float = 30) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


@contextmanager
def running(main: str = "gateway", /, **settings: str | int | Path) -> Iterator[Server]:
    """Start a gateway with these settings (port=... is FOVEA_PORT) and stop it at the end."""
    process = start(main, **settings)
    lines: list[str] = []
    try:
        server = _wait_for_ready_line(process, lines)
        collector = threading.Thread(target=_collect, args=(process, lines))
        collector.start()
        try:
            yield server
        finally:
            server.client.close()
            _end(process)
            collector.join()
    finally:
        _end(process)
        assert process.stdout is not None
        process.stdout.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def start(main: str = "gateway", /, **settings: str | int | Path) -> subprocess.Popen[str]:
    """Start `python -m gateway`, or another main; standard error is joined to its output."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("FOVEA_")}
    environment |= {f"FOVEA_{name.upper()}": str(value) for name, value in settings.items()}
    environment.setdefault("FOVEA_PORT", "0")
    # Threads that wait for each other suffer most on a busy machine.
    environment.setdefault("FOVEA_THREADS_PER_WORKER", "1")
    return subprocess.Popen(
        [sys.executable, "-m", main],
        env=environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def _wait_for_ready_line(process: subprocess.Popen[str], lines: list[str]) -> Server:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line)
        found = _READY.match(line)
        if found:
            return Server(process, url=found[2], model=found[1], lines=lines)
    raise AssertionError(f"the gateway ended with {process.wait()}:\n{''.join(lines)}")


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    lines.extend(process.stdout)


def refused_start(**settings: str | int | Path) -> str:
    """What a gateway says that cannot start with these settings, and ends with 1."""
    process = start(**settings)
    try:
        output, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    assert process.returncode == 1
    assert "Traceback" not in output
    return output
