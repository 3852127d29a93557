"""A pool of real processes around fake stages, and jobs for it."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from config.settings import ModelSettings, Settings, WorkerSettings
from config.workers import parse_workers
from tests.fakes import FAKE_COMMAND, HIDDEN
from tests.plans import make_plan
from workers.messages import (
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Pixels,
    Ready,
    Region,
    Span,
    Start,
    TensorRef,
    Vocabulary,
)
from workers.pool import Pool
from workers.sampling import Sampling

LIMIT_SECONDS = 20.0


@dataclass
class Harness:
    """A pool and all it said. Owned by the test."""

    pool: Pool
    events: list[tuple[int, FromWorker]] = field(default_factory=list)
    lost: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    disliked_job: str = ""  # whose events make the listener raise

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something the pool says makes the condition true."""
        async with asyncio.timeout(LIMIT_SECONDS):
            while not condition():
                self.changed.clear()
                await self.changed.wait()

    def of(self, job_id: str) -> list[FromWorker]:
        """What was said of a job."""
        return [event for _, event in self.events if getattr(event, "job_id", None) == job_id]

    def num_ready(self) -> int:
        """Times that workers became ready."""
        return sum(isinstance(event, Ready) for _, event in self.events)


@asynccontextmanager
async def running(
    workers: str = "cpu:vision+language",
    *,
    model: str = "fake",
    command: tuple[str, ...] = FAKE_COMMAND,
    **limits: float,
) -> AsyncIterator[Harness]:
    """Start a pool, and stop it in the end; whether it is ready is for the test to wait for."""
    settings = Settings(
        model=ModelSettings(model=Path(model)),
        workers=WorkerSettings.model_validate(
            {"workers": workers, "arena_bytes": 1 << 20, "restart_seconds": 0.05} | limits
        ),
    )

    def on_event(index: int, event: FromWorker) -> None:
        harness.events.append((index, event))
        harness.changed.set()
        if harness.disliked_job and getattr(event, "job_id", "") == harness.disliked_job:
            raise RuntimeError("the listener is broken")

    def on_lost(index: int) -> None:
        harness.lost.append(index)
        harness.changed.set()

    specs = parse_workers(workers)
    harness = Harness(Pool(settings, specs, on_event=on_event, on_lost=on_lost, command=command))
    await harness.pool.start()
    try:
        yield harness
    finally:
        await harness.pool.stop(1.0)


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario in the kind of event loop that the gateway has."""
    uvloop.run(scenario())


def script(lines: str) -> tuple[str, ...]:
    """The command of a worker that does what `lines` say with `link`, its socket."""
    start = "import os, socket, sys, time; link = socket.socket(fileno=int(sys.argv[1])); "
    return (sys.executable, "-c", f"{start}link.recv(1 << 16)\n{lines}")


def children() -> list[int]:
    """Process ids of this process's children, in the order of their start."""
    found = [
        Path(f"/proc/{os.getpid()}/task/{task}/children") for task in os.listdir("/proc/self/task")
    ]
    return sorted(int(pid) for path in found for pid in path.read_text().split())


def start_message(model: str, roles: tuple[str, ...]) -> Start:
    """What a worker on the CPU is told; limits that nothing of the tests comes near."""
    return Start(
        index=9,
        name="worker-9",
        device="cpu",
        roles=roles,
        model=model,
        dtype="auto",
        num_threads=1,
        log_level="info",
        log_format="text",
        max_context_tokens=0,
        max_vision_batch_patches=64,
        feature_pool_bytes=0,
        shares_feature_pool=False,
        kv_cache_tokens=0,
        kv_block_tokens=64,
        max_step_tokens=64,
        max_step_sequences=64,
        attention="auto",
        cuda_graphs=False,
        prefix_cache=True,
        digest_key=bytes(32),
        vocabulary=Vocabulary((), ()),
    )


def last_events(events: list[FromWorker]) -> list[Encoded | Finished | Failed]:
    return [event for event in events if isinstance(event, Encoded | Finished | Failed)]


def encode_job(job_id: str, pixels: Region, target: Region) -> EncodeJob:
    """An image of 2 x 4 pixels, as 2 tokens."""
    plan = make_plan((2, 4), grid=(1, 2, 4), patch_size=1, num_tokens=2)
    payload = Pixels(pixels, 2, 4, 3, "resized")
    return EncodeJob(job_id=job_id, plan=plan, payload=payload, target=target, seconds_left=60.0)


def image_job(harness: Harness, job_id: str, colour: Sequence[int], owner: int = 0) -> EncodeJob:
    """An encode job with its pixels in the owner's arena and room for the embeddings."""
    arena = harness.pool.arena(owner)
    pixels, target = arena.allocate(24), arena.allocate(2 * HIDDEN * 4)
    assert pixels is not None
    assert target is not None
    arena.view(pixels)[:] = bytes(colour) * 8
    return encode_job(job_id, pixels, target)


def prompt_job(
    job_id: str, prompt: Sequence[int], images: Sequence[EncodeJob] = (), max_tokens: int = 50
) -> GenerateJob:
    """A prompt that looks at images which were encoded before; each takes two of its tokens."""
    spans = tuple(
        Span(
            start=2 * index,
            num_tokens=2,
            grid=job.plan.grid,
            embeddings=TensorRef(job.target, "float32", (1, 2, HIDDEN)),
            identity=bytes(16),
        )
        for index, job in enumerate(images)
    )
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=max_tokens, stop_token_ids=(762,)
    )
    return GenerateJob(
        job_id=job_id,
        salt=b"",
        token_ids=np.asarray(prompt, "<i4").tobytes(),
        spans=spans,
        sampling=sampling,
        seconds_left=60.0,
    )
