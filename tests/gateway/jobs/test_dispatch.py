"""Dispatch against a pool that only remembers what it was sent."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from gateway.encoding.lease import Lease, Share
from gateway.errors import NotReady, WorkerFailed, WorkerLost
from gateway.jobs.dispatch import Dispatcher, Undecoded
from gateway.jobs.ticket import Ticket
from gateway.observe.metrics import Metrics
from tests.gateway.encoding.test_place import plan
from workers.arena import Arena
from workers.keeper import WorkerView
from workers.messages import (
    Abort,
    Encoded,
    EncodeJob,
    Failed,
    Finished,
    GenerateJob,
    Missing,
    Pixels,
    Region,
    Taken,
    Tokens,
)
from workers.pool import Fleet, Pool
from workers.sampling import Likelihood, Sampling


@dataclass
class RecordingPool:
    """Two ready owners and one engine; `sent` holds (worker, message)."""

    sent: list[tuple[int, Any]] = field(default_factory=list)
    ready: bool = True

    def fleet(self) -> Fleet:
        roles = (("vision",), ("vision",), ("language",))
        return Fleet(
            tuple(
                WorkerView(
                    index=index,
                    name=f"worker-{index}",
                    device="cpu",
                    roles=held,
                    ready=self.ready,
                    in_flight=0,
                    embedding_bytes_per_token=64,
                    max_context_tokens=100,
                    kv_cache_tokens=1000,
                    load_seconds=0.0,
                )
                for index, held in enumerate(roles)
            )
        )

    def send(self, index: int, message: Any) -> None:
        self.sent.append((index, message))


@dataclass
class Desk:
    """A dispatcher with its pool and one arena."""

    pool: RecordingPool
    dispatcher: Dispatcher
    arena: Arena

    def lease(self, num_bytes: int = 1000) -> Lease[Arena]:
        region = self.arena.allocate(num_bytes)
        assert region is not None
        return Lease(self.arena, region)

    def generate(self, job_id: str, share: Share | None = None) -> Ticket:
        job = generate_job(job_id)
        return self.dispatcher.generate(2, job, share or Share([]), asyncio.Event())


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 5))


@pytest.fixture
def desk() -> Desk:
    pool = RecordingPool()
    return Desk(pool, Dispatcher(cast("Pool", pool), Metrics()), Arena(0, 1 << 20))


def encode_job(job_id: str) -> EncodeJob:
    region = Region(0, 0, 12)
    return EncodeJob(
        job_id=job_id,
        plan=plan(4, 6),
        payload=Pixels(region, 2, 2, 3, "resized"),
        target=region,
        seconds_left=5.0,
    )


def encoded(job_id: str) -> Encoded:
    return Encoded(
        job_id=job_id,
        dtype="float32",
        shape=(1, 6, 8),
        feature_digest=bytes(16),
        queue_seconds=0.1,
        decode_seconds=0.1,
        preprocess_seconds=0.1,
        digest_seconds=0.1,
        encode_seconds=0.1,
    )


def generate_job(job_id: str) -> GenerateJob:
    sampling = Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=5, stop_token_ids=()
    )
    return GenerateJob(
        job_id=job_id, salt=b"", token_ids=b"", spans=(), sampling=sampling, seconds_left=5.0
    )


def taken(job_id: str, is_copied: bool = True) -> Taken:
    return Taken(job_id=job_id, is_copied=is_copied, transfer_seconds=0.0)


def finished(job_id: str) -> Finished:
    return Finished(
        job_id=job_id,
        reason="stop",
        num_prompt_tokens=1,
        num_completion_tokens=3,
    )


def test_each_encode_job_gets_its_own_result(desk: Desk) -> None:
    async def work() -> None:
        lease = desk.lease()
        jobs = [encode_job(name) for name in "abc"]
        tasks = [asyncio.create_task(desk.dispatcher.encode(0, job, [lease])) for job in jobs]
        await asyncio.sleep(0)
        for name in "cab":
            desk.dispatcher.on_event(0, encoded(name))
        assert [(await task).job_id for task in tasks] == ["a", "b", "c"]
        lease.release()
        assert desk.arena.num_bytes_used == 0
        assert desk.dispatcher.num_jobs == 0

    run(work())


def test_a_cancelled_encode_aborts_and_holds_its_region_until_the_worker_lets_go(
    desk: Desk,
) -> None:
    async def work() -> None:
        lease = desk.lease()
        task = asyncio.create_task(desk.dispatcher.encode(1, encode_job("a"), [lease]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert desk.pool.sent[-1] == (1, Abort(job_id="a"))
        lease.release()
        assert desk.arena.num_bytes_used > 0
        desk.dispatcher.on_event(1, Failed(job_id="a", kind="internal", message="aborted"))
        assert desk.arena.num_bytes_used == 0

    run(work())


@pytest.mark.parametrize(
    ("kind", "error"),
    [("lost", WorkerLost), ("internal", WorkerFailed), ("not_finite", WorkerFailed)],
)
def test_a_failed_encode_raises_by_name(desk: Desk, kind: Any, error: type[Exception]) -> None:
    async def work() -> None:
        task = asyncio.create_task(desk.dispatcher.encode(0, encode_job("a"), [desk.lease()]))
        await asyncio.sleep(0)
        desk.dispatcher.on_event(0, Failed(job_id="a", kind=kind, message="secret /path"))
        with pytest.raises(error) as caught:
            await task
        assert "secret" not in str(caught.value)

    run(work())


def test_tokens_pile_up_for_a_slow_reader_and_come_in_order(desk: Desk) -> None:
    async def work() -> None:
        ticket = desk.generate("a")
        desk.dispatcher.on_event(2, Tokens(job_id="a", token_ids=(1, 2)))
        desk.dispatcher.on_event(2, Tokens(job_id="a", token_ids=(3,)))
        await ticket.wake.wait()
        assert ticket.take().token_ids == (1, 2, 3)
        assert not ticket.has_news
        desk.dispatcher.on_event(2, Tokens(job_id="a", token_ids=(4,)))
        desk.dispatcher.on_event(2, finished("a"))
        last = ticket.take()
        assert last.token_ids == (4,)
        assert isinstance(last.end, Finished)

    run(work())


def test_embeddings_are_given_back_when_taken_or_at_the_end(desk: Desk) -> None:
    async def work() -> None:
        for name, event in (
            ("a", taken("a")),
            ("b", finished("b")),
        ):
            share = Share([desk.lease()])
            desk.generate(name, share)
            share.release()
            assert desk.arena.num_bytes_used > 0
            desk.dispatcher.on_event(2, event)
            assert desk.arena.num_bytes_used == 0

    run(work())


def test_shared_embeddings_are_given_back_when_the_last_job_has_taken_them(desk: Desk) -> None:
    async def work() -> None:
        share = Share([desk.lease(), desk.lease()])
        for name in "abc":
            desk.generate(name, share)
        share.release()
        for event in (taken("b"), taken("b"), finished("b"), finished("c")):
            desk.dispatcher.on_event(2, event)
            assert desk.arena.num_bytes_used > 0
        desk.dispatcher.on_event(2, taken("a"))
        assert desk.arena.num_bytes_used == 0
        desk.dispatcher.on_event(2, finished("a"))

    run(work())


def test_logprobs_come_with_their_tokens(desk: Desk) -> None:
    async def work() -> None:
        ticket = desk.generate("a")
        told = [Likelihood(-1.0 * index, ((index, -0.5),)) for index in range(3)]
        for index in range(3):
            event = Tokens(job_id="a", token_ids=(index,), likelihoods=(told[index],))
            desk.dispatcher.on_event(2, event)
        batch = ticket.take()
        assert (batch.token_ids, batch.likelihoods) == ((0, 1, 2), tuple(told))
        assert ticket.take().likelihoods == ()

    run(work())


def test_embeddings_that_are_read_in_place_are_given_back_at_the_end(desk: Desk) -> None:
    async def work() -> None:
        share = Share([desk.lease()])
        desk.generate("a", share)
        share.release()
        desk.dispatcher.on_event(2, taken("a", is_copied=False))
        assert desk.arena.num_bytes_used > 0
        desk.dispatcher.on_event(2, finished("a"))
        assert desk.arena.num_bytes_used == 0

    run(work())


def test_closing_aborts_once_begun_and_does_nothing_after_the_end(desk: Desk) -> None:
    async def work() -> None:
        ticket = desk.generate("a")
        desk.dispatcher.close(ticket)
        assert desk.pool.sent[-1] == (2, Abort(job_id="a"))
        desk.dispatcher.on_event(2, finished("a"))
        desk.pool.sent.clear()
        desk.dispatcher.close(ticket)
        assert desk.pool.sent == []

    run(work())


def test_late_events_of_ended_jobs_are_dropped(desk: Desk) -> None:
    async def work() -> None:
        ticket = desk.generate("a")
        desk.dispatcher.on_event(2, finished("a"))
        for late in (Tokens(job_id="a", token_ids=(9,)), finished("a"), encoded("b")):
            desk.dispatcher.on_event(2, late)
        assert ticket.take().token_ids == ()

    run(work())


def test_a_file_that_the_owner_cannot_read_is_told_apart_from_a_failure(desk: Desk) -> None:
    async def work() -> None:
        lease = desk.lease()
        task = asyncio.create_task(desk.dispatcher.encode(0, encode_job("a"), [lease]))
        await asyncio.sleep(0)
        desk.dispatcher.on_event(0, Failed(job_id="a", kind="undecoded", message=""))
        with pytest.raises(Undecoded):
            await task

    run(work())


def test_engines_carry_the_prompts_they_hold(desk: Desk) -> None:
    async def work() -> None:
        assert [engine.load for engine in desk.dispatcher.engines()] == [0]
        desk.generate("b")
        assert [(engine.index, engine.load) for engine in desk.dispatcher.engines()] == [(2, 1)]

    run(work())


def test_without_a_ready_worker_the_request_is_told_to_wait(desk: Desk) -> None:
    desk.pool.ready = False
    with pytest.raises(NotReady, match="language"):
        desk.dispatcher.engines()


def test_a_job_that_was_refused_can_be_sent_again_by_its_id(desk: Desk) -> None:
    async def work() -> None:
        lease = desk.lease()
        share = Share([lease])
        first = desk.generate("a", share)
        assert not first.is_decided
        desk.dispatcher.on_event(2, Missing(job_id="a", starts=(3, 9)))
        assert (first.missing, first.is_decided, first.has_news) == ((3, 9), True, False)
        assert (share.num_holders, desk.dispatcher.num_jobs) == (1, 0)
        second = desk.generate("a", share)
        num_sent = len(desk.pool.sent)
        desk.dispatcher.close(first)
        assert len(desk.pool.sent) == num_sent
        desk.dispatcher.on_event(2, taken("a"))
        assert (second.missing, second.is_decided) == ((), True)
        desk.dispatcher.on_event(2, finished("a"))
        share.release()
        assert desk.arena.num_bytes_used == 0

    run(work())
