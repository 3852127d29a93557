"""A gateway of our own: started on a free port of loopback, looked at, stopped."""

import asyncio
import os
import re
import signal
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).resolve().parents[3]
_READY = re.compile(rb"Fovea is ready after .* for the model '(.*)' to (http://[^/]+)/")
START_SECONDS = 600.0
STOP_SECONDS = 60.0
# What is to come back to zero when nothing is asked any more.
HELD = (
    "fovea_requests_running",
    "fovea_worker_running",
    "fovea_worker_waiting",
    "fovea_kv_used_tokens",
    "fovea_arena_used_bytes",
    "fovea_feature_pool_used_bytes",
)


@dataclass(slots=True)
class House:
    """A running gateway. Owned by whoever started it."""

    process: asyncio.subprocess.Process
    url: str
    model: str
    client: httpx.AsyncClient
    lines: list[str] = field(default_factory=list)  # the last that it wrote

    def workers(self) -> list[int]:
        """Process ids of the workers, oldest first."""
        pid = self.process.pid
        try:
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except OSError:
            return []
        return sorted(int(each) for each in children.split())

    async def num_ready(self) -> int:
        """Workers that take jobs."""
        response = await self.client.get(f"{self.url}/ready")
        return sum(worker["ready"] for worker in response.json()["workers"])

    async def counters(self, names: Sequence[str]) -> dict[str, float]:
        """The sums of these metrics over all their labels."""
        text = (await self.client.get(f"{self.url}/metrics")).text
        sums = dict.fromkeys(names, 0.0)
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in sums:
                    sums[sample.name] += sample.value
        return sums

    async def held(self, seconds: float = 15.0) -> dict[str, float]:
        """What is still held when nothing has been asked for a while; empty if nothing is."""
        limit = time.monotonic() + seconds
        while True:
            left = {name: value for name, value in (await self.counters(HELD)).items() if value}
            if not left or time.monotonic() > limit:
                return left
            await asyncio.sleep(0.2)


@asynccontextmanager
async def open_house(main: str, settings: Sequence[str]) -> AsyncIterator[House]:
    """Start `python -m MAIN` with settings (`name=value`), and stop it at the end."""
    environment = {name: value for name, value in os.environ.items() if name[:6] != "FOVEA_"}
    environment |= {"FOVEA_PORT": "0", "FOVEA_LOG_LEVEL": "warning"}
    for setting in settings:
        name, _, value = setting.partition("=")
        environment[f"FOVEA_{name.upper()}"] = value
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", main),
        env=environment,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    lines: list[str] = []
    collector = None
    try:
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            model, url = await asyncio.wait_for(_wait_ready(process, lines), START_SECONDS)
            collector = asyncio.create_task(_collect(process, lines))
            yield House(process, url, model, client, lines)
    finally:
        await _stop(process)
        if collector is not None:
            await collector


async def _wait_ready(process: asyncio.subprocess.Process, lines: list[str]) -> tuple[str, str]:
    assert process.stdout is not None
    async for line in process.stdout:
        lines.append(line.decode(errors="replace"))
        if found := _READY.match(line):
            return found[1].decode(), found[2].decode()
    raise SystemExit("the gateway did not start:\n" + "".join(lines))


async def _collect(process: asyncio.subprocess.Process, lines: list[str]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        lines.append(line.decode(errors="replace"))
        del lines[:-1000]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        print(f"the gateway did not end within {STOP_SECONDS:g} s of SIGTERM and is killed")
        process.kill()
        await process.wait()
