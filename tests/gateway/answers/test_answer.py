"""Choices of one request, read from events that a worker might send."""

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from config.settings import DEMO_MODEL, Settings
from gateway.answers.answer import Answers, Piece
from gateway.edge.admit import Admission, Permit
from gateway.edge.keys import KeyLimits
from gateway.edge.limits import Account
from gateway.encoding.lease import Lease, Share
from gateway.errors import Overloaded, WorkerLost
from gateway.jobs.dispatch import Dispatcher
from gateway.journey import Journey
from gateway.observe.metrics import Metrics
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.prompt import Prompt, make_prompt
from gateway.schemas.schema import ChatRequest
from gateway.services import Services
from tests.gateway.jobs.test_dispatch import RecordingPool
from workers.arena import Arena
from workers.messages import (
    Abort,
    Failed,
    Finished,
    FromWorker,
    GenerateJob,
    Started,
    Taken,
    Tokens,
)
from workers.pool import OutboxFull, Pool
from workers.sampling import Likelihood

CHECKPOINT = load_checkpoint(DEMO_MODEL)
LETTERS = {letter: CHECKPOINT.tokenizer.token_to_id(letter) or 0 for letter in "abcdXYZ"}


@dataclass
class LimitedPool(RecordingPool):
    """Takes so many jobs."""

    room: int = 100

    def send(self, index: int, message: Any) -> None:
        if isinstance(message, GenerateJob):
            self.room -= 1
            if self.room < 0:
                raise OutboxFull
        super().send(index, message)


@dataclass
class Embedded:
    """An encoder that holds one lease for a request without images."""

    arena: Arena = field(default_factory=lambda: Arena(0, 1 << 20))

    async def obtain(
        self, pictures: Any, request_id: str, cleanup: ExitStack
    ) -> tuple[list[Any], Share]:
        region = self.arena.allocate(1000)
        assert region is not None
        share = Share([Lease(self.arena, region)])
        cleanup.callback(share.release)
        return [], share


@dataclass
class Bench:
    """One request up to its answers."""

    fields: dict[str, Any]
    room: int = 100

    def __post_init__(self) -> None:
        self.pool = LimitedPool(room=self.room)
        self.encoder = Embedded()
        missing = cast("Any", None)
        settings = Settings()
        self.services = Services(
            settings=settings,
            checkpoint=CHECKPOINT,
            served_model_name="m",
            backend="cpu",
            metrics=Metrics(),
            admission=Admission(settings.server),
            fetcher=missing,
            decode_pool=missing,
            pool=cast("Pool", self.pool),
            dispatcher=Dispatcher(cast("Pool", self.pool), Metrics()),
            store=missing,
            encoder=cast("Any", self.encoder),
        )
        self.cleanup = ExitStack()

    def prompt(self) -> Prompt:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]} | self.fields
        return make_prompt(
            ChatRequest.model_validate(body),
            request_id="r",
            checkpoint=CHECKPOINT,
            limits=self.services.settings.images,
            request_seconds=60.0,
            now=0.0,
        )

    async def start(self) -> Answers:
        permit = Permit(self.services.admission, Account(b"", KeyLimits()))
        wake = asyncio.Event()
        journey = Journey(self.services, self.prompt(), permit, 0)
        return Answers([await journey.start(self.cleanup, wake)], wake)

    def tell(self, *events: FromWorker) -> None:
        for event in events:
            self.services.dispatcher.on_event(2, event)

    @property
    def jobs(self) -> list[GenerateJob]:
        return [message for _, message in self.pool.sent if isinstance(message, GenerateJob)]

    @property
    def aborted(self) -> list[str]:
        return [message.job_id for _, message in self.pool.sent if isinstance(message, Abort)]

    @property
    def num_bytes_held(self) -> int:
        return self.encoder.arena.num_bytes_used


def tokens(job_id: str, text: str, logprob: float | None = None) -> Tokens:
    ids = tuple(LETTERS[letter] for letter in text)
    told = () if logprob is None else tuple(Likelihood(logprob, ()) for _ in ids)
    return Tokens(job_id=job_id, token_ids=ids, likelihoods=told)


def taken(job_id: str) -> Taken:
    return Taken(job_id=job_id, is_copied=True, transfer_seconds=0.0)


def finished(job_id: str, num_tokens: int) -> Finished:
    return Finished(
        job_id=job_id,
        reason="length",
        num_prompt_tokens=9,
        num_completion_tokens=num_tokens,
    )


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 5))


def texts(pieces: list[Piece]) -> list[tuple[int, str, str | None]]:
    return [(piece.choice, piece.text, piece.reason) for piece in pieces]


def test_choices_are_jobs_of_one_engine_that_differ_in_their_seeds() -> None:
    async def work() -> None:
        bench = Bench({"n": 3, "seed": 4})
        await bench.start()
        assert [job.job_id for job in bench.jobs] == ["r", "r.1", "r.2"]
        assert len({job.sampling.seed for job in bench.jobs}) == 3
        assert bench.jobs[0].sampling.seed == 4
        assert len({job.token_ids for job in bench.jobs}) == 1

    run(work())


def test_choices_are_told_as_they_come_and_end_once_each() -> None:
    async def work() -> None:
        bench = Bench({"n": 2})
        answers = await bench.start()
        bench.tell(Started(job_id="r.1", num_cached_tokens=8), tokens("r.1", "ab"))
        assert texts(await answers.next()) == [(1, "ab", None)]
        bench.tell(Started(job_id="r", num_cached_tokens=5))
        bench.tell(tokens("r", "c"), tokens("r.1", "d"), finished("r", 1))
        assert texts(await answers.next()) == [(0, "c", "length"), (1, "d", None)]
        assert answers.usage is None
        bench.tell(finished("r.1", 3))
        assert texts(await answers.next()) == [(1, "", "length")]
        usage = answers.usage
        assert usage is not None
        assert (usage.completion_tokens, usage.cached_tokens) == (4, 5)
        assert usage.prompt_tokens == len(bench.jobs[0].token_ids) // 4

    run(work())


def test_a_choice_that_a_stop_string_ended_is_stopped_and_heard_no_more() -> None:
    async def work() -> None:
        bench = Bench({"n": 2, "stop": ["XY"]})
        answers = await bench.start()
        bench.tell(tokens("r", "aXYZZ"))
        assert texts(await answers.next()) == [(0, "a", "stop")]
        assert bench.aborted == ["r"]
        bench.tell(tokens("r", "b"), finished("r", 9))
        bench.tell(tokens("r.1", "b"), finished("r.1", 1))
        assert texts(await answers.next()) == [(1, "b", "length")]
        assert answers.usage is not None
        assert answers.usage.completion_tokens == 3 + 1  # up to the Y, not what came after it

    run(work())


def test_a_failed_choice_fails_the_request_and_stops_the_others() -> None:
    async def work() -> None:
        bench = Bench({"n": 3})
        answers = await bench.start()
        bench.tell(tokens("r", "a"), Failed(job_id="r.1", kind="lost", message=""))
        with pytest.raises(WorkerLost):
            await answers.next()
        bench.cleanup.close()
        assert sorted(bench.aborted) == ["r", "r.2"]

    run(work())


def test_embeddings_stay_until_every_choice_has_taken_them() -> None:
    async def work() -> None:
        bench = Bench({"n": 3})
        await bench.start()
        bench.tell(taken("r"), taken("r.2"))
        assert bench.num_bytes_held > 0
        bench.tell(taken("r.1"))
        assert bench.num_bytes_held == 0

    run(work())


def test_a_worker_that_takes_half_of_the_choices_gets_none() -> None:
    async def work() -> None:
        bench = Bench({"n": 4}, room=2)
        with pytest.raises(Overloaded):
            await bench.start()
        bench.cleanup.close()
        assert sorted(bench.aborted) == ["r", "r.1"]
        # The engine may still be reading for the two.
        assert bench.num_bytes_held > 0
        bench.tell(finished("r", 0), finished("r.1", 0))
        assert bench.num_bytes_held == 0
        assert bench.services.dispatcher.num_jobs == 0

    run(work())


def test_logprobs_come_with_the_text_that_shows_their_tokens() -> None:
    async def work() -> None:
        bench = Bench({"logprobs": True, "stop": ["XYZ"]})
        answers = await bench.start()
        bench.tell(tokens("r", "aXY", -0.5))
        (piece,) = await answers.next()
        assert [entry["token"] for entry in piece.logprobs or ()] == ["a"]
        bench.tell(tokens("r", "b", -0.5))
        (piece,) = await answers.next()
        assert [entry["token"] for entry in piece.logprobs or ()] == ["X", "Y", "b"]
        bench.tell(tokens("r", "X", -0.5), finished("r", 5))
        (piece,) = await answers.next()
        assert [entry["token"] for entry in piece.logprobs or ()] == ["X"]

    run(work())
