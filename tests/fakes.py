"""Stages without a model: real loops, wire and processes around arithmetic anybody can repeat.

A prompt or an image provokes faults: by a token of `PROMPT_FAULTS` anywhere in the prompt, or by
a first pixel of `PIXEL_FAULTS` (send one plain colour as PNG). A checkpoint folder with a name of
`START_FAULTS` provokes them while loading.
"""

import os
import signal
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np

from workers.arena import Arenas
from workers.fail_kind import FailKind
from workers.messages import (
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    MapPool,
    Missing,
    PoolMapped,
    Ready,
    Start,
    Stats,
    Taken,
    Tokens,
)

HIDDEN = 8  # float32 values per image token
CONTEXT_TOKENS = 4096
NUM_PRINTABLE = 94  # ids 0 to 93 of the demo model's tokenizer are the printable ASCII characters
# Token id -> what happens; the comment is the character it stands for. Put letters around it.
PROMPT_FAULTS = {
    61: "die",  # ^
    93: "hang",  # ~
    91: "fail",  # |
    63: "raise",  # `
    59: "die later",  # \ : after three tokens
    31: "slow",  # @ : 20 ms for each token
}
PIXEL_FAULTS = {
    (13, 0, 0): "die",
    (13, 1, 0): "hang",
    (13, 2, 0): "fail",
    (13, 3, 0): "raise",
    (13, 4, 0): "slow",  # 200 ms
    (13, 5, 0): "compute",  # 3 s
}
START_FAULTS = ("fail-to-load", "die-while-loading", "hang-while-loading")
FAKE_COMMAND = (sys.executable, "-m", "tests.fake_worker")  # for the pool
TOKENS_BEFORE_DEATH = 3


def expected_embeddings(pixels: bytes, num_tokens: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What the encoder writes for an image: float32 [1, num_tokens, HIDDEN]."""
    generator = np.random.default_rng(zlib.crc32(pixels))
    return generator.standard_normal((1, num_tokens, HIDDEN), dtype=np.float32)


def expected_tokens(
    token_ids: Sequence[int], embeddings: Sequence[bytes], max_tokens: int, ignore_eos: bool = False
) -> tuple[int, ...]:
    """What the language model answers: 5 to 12 printable tokens, fewer or more by the limits."""
    seed = zlib.crc32(np.asarray(token_ids, "<i4").tobytes())
    for embedding in embeddings:
        seed = zlib.crc32(embedding, seed)
    length = max_tokens if ignore_eos else min(max_tokens, 5 + seed % 8)
    return tuple((seed + 7919 * position) % NUM_PRINTABLE for position in range(length))


class FakeEncoder:
    """One image a step. Used by the worker's loop."""

    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas
        self._waiting: dict[str, tuple[EncodeJob, float]] = {}  # and when it runs out of time
        self._aborted: list[FromWorker] = []

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._aborted)

    def put(self, job: EncodeJob) -> None:
        self._waiting[job.job_id] = (job, time.monotonic() + job.seconds_left)

    def abort(self, job_id: str) -> None:
        if self._waiting.pop(job_id, None) is not None:
            self._aborted.append(Failed(job_id=job_id, kind="internal", message="aborted"))

    def step(self) -> list[FromWorker]:
        events, self._aborted = self._aborted, []
        if self._waiting:
            job, deadline = next(iter(self._waiting.values()))
            event = self._late(job) if time.monotonic() >= deadline else self._encode(job)
            del self._waiting[job.job_id]
            events.append(event)
        return events

    def _late(self, job: EncodeJob) -> Failed:
        return Failed(job_id=job.job_id, kind="deadline", message="too late")

    def _encode(self, job: EncodeJob) -> Encoded | Failed:
        pixels = bytes(self._arenas.view(job.payload.region))
        red, green, blue = pixels[:3]
        fault = PIXEL_FAULTS.get((red, green, blue), "")
        if fault == "fail":
            return Failed(job_id=job.job_id, kind="internal", message="this image is too red")
        _suffer(fault, slow_seconds=0.2)
        values = expected_embeddings(pixels, job.plan.num_tokens)
        self._arenas.view(job.target)[: values.nbytes] = values.tobytes()
        return Encoded(
            job_id=job.job_id,
            dtype="float32",
            shape=values.shape,
            feature_digest=blake2b(pixels, digest_size=16).digest(),
            queue_seconds=0.001,
            decode_seconds=0.0,
            preprocess_seconds=0.002,
            digest_seconds=0.0001,
            encode_seconds=0.003,
        )


@dataclass
class _Answer:
    job: GenerateJob
    tokens: tuple[int, ...]
    faults: frozenset[str]
    deadline: float
    num_told: int = 0


class FakeLanguage:
    """One token for each running job a step. Used by the worker's loop."""

    def __init__(self, arenas: Arenas) -> None:
        self._arenas = arenas
        self._running: dict[str, _Answer] = {}
        self._events: list[FromWorker] = []

    @property
    def busy(self) -> bool:
        return bool(self._running or self._events)

    def put(self, job: GenerateJob) -> None:
        prompt = np.frombuffer(job.token_ids, "<i4").tolist()
        if len(prompt) >= CONTEXT_TOKENS:
            message = f"{len(prompt)} tokens do not fit {CONTEXT_TOKENS}"
            self._events.append(Failed(job_id=job.job_id, kind="bad_input", message=message))
            return
        missing = tuple(span.start for span in job.spans if span.embeddings is None)
        if missing:  # it keeps nothing
            self._events.append(Missing(job_id=job.job_id, starts=missing))
            return
        lying = [span.embeddings for span in job.spans if span.embeddings is not None]
        embeddings = [bytes(self._arenas.view(each.region)) for each in lying]
        self._events.append(Taken(job_id=job.job_id, is_copied=True, transfer_seconds=0.0))
        ignore_eos = not job.sampling.stop_token_ids
        self._running[job.job_id] = _Answer(
            job=job,
            tokens=expected_tokens(prompt, embeddings, job.sampling.max_tokens, ignore_eos),
            faults=frozenset(PROMPT_FAULTS[each] for each in prompt if each in PROMPT_FAULTS),
            deadline=time.monotonic() + job.seconds_left,
        )

    def map_pool(self, message: MapPool) -> PoolMapped:
        return PoolMapped(number=message.pool.number, failure="fakes read arenas")

    def drop_pool(self, number: int) -> None:
        pass

    def abort(self, job_id: str) -> None:
        if job_id in self._running:
            self._finish(self._running[job_id], "abort")

    def step(self) -> list[FromWorker]:
        for answer in list(self._running.values()):
            self._advance(answer)
        load = len(self._running)
        self._events.append(
            Stats(
                num_running=load,
                num_waiting=0,
                kv_used_tokens=16 * load,
                kv_cached_tokens=0,
                num_images_waiting=0,
            )
        )
        events, self._events = self._events, []
        return events

    def _advance(self, answer: _Answer) -> None:
        job_id = answer.job.job_id
        for fault in answer.faults - {"fail", "die later"}:
            _suffer(fault, slow_seconds=0.02)
        if "fail" in answer.faults:
            self._fail(job_id, "internal", "this prompt has a bar")
        elif time.monotonic() >= answer.deadline:
            self._fail(job_id, "deadline", "too late")
        elif answer.num_told < len(answer.tokens):
            token = answer.tokens[answer.num_told]
            self._events.append(Tokens(job_id=job_id, token_ids=(token,)))
            answer.num_told += 1
            if "die later" in answer.faults and answer.num_told > TOKENS_BEFORE_DEATH:
                _suffer("die", slow_seconds=0)
        else:
            is_cut = answer.num_told == answer.job.sampling.max_tokens
            self._finish(answer, "length" if is_cut else "stop")

    def _fail(self, job_id: str, kind: FailKind, message: str) -> None:
        del self._running[job_id]
        self._events.append(Failed(job_id=job_id, kind=kind, message=message))

    def _finish(self, answer: _Answer, reason: Literal["stop", "length", "abort"]) -> None:
        del self._running[answer.job.job_id]
        self._events.append(
            Finished(
                job_id=answer.job.job_id,
                reason=reason,
                num_prompt_tokens=len(answer.job.token_ids) // 4,
                num_completion_tokens=answer.num_told + (reason == "stop"),
            )
        )


def _suffer(fault: str, slow_seconds: float) -> None:
    match fault:
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hang":
            time.sleep(3600)
        case "compute":
            time.sleep(3)
        case "raise":
            raise RuntimeError("this job asked for it")
        case "slow":
            time.sleep(slow_seconds)


def build_fakes(
    start: Start, arenas: Arenas, progress: Callable[[int, int], None]
) -> tuple[FakeEncoder | None, FakeLanguage | None, Ready]:
    """The stages of a fake worker, as `workers.build.build_stages` makes real ones."""
    progress(0, 2)
    match Path(start.model).name:
        case "fail-to-load":
            raise ValueError("the weights are made of cheese")
        case "die-while-loading":
            _suffer("die", slow_seconds=0)
        case "hang-while-loading":
            _suffer("hang", slow_seconds=0)
    progress(2, 2)
    has_vision, has_language = "vision" in start.roles, "language" in start.roles
    ready = Ready(
        embedding_bytes_per_token=4 * HIDDEN if has_vision else 0,
        max_context_tokens=CONTEXT_TOKENS if has_language else 0,
        kv_cache_tokens=2 * CONTEXT_TOKENS if has_language else 0,
        load_seconds=0.01,
    )
    vision = FakeEncoder(arenas) if has_vision else None
    return vision, FakeLanguage(arenas) if has_language else None, ready
