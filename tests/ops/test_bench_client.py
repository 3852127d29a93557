"""The load client against a real server whose delays are known."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import httpx
import pytest

from ops.bench.client import Answer, Failure, Outcome, Target, ask, make_body
from ops.bench.rounds import closed_loop, fixed_rate, open_client
from ops.bench.workload import WORKLOADS
from tests.ops.bench_server import (
    BREAKS_OFF,
    FAILS_IN_STREAM,
    FIRST_DELAY_SECONDS,
    GAP_SECONDS,
    INSTANT,
    NO_USAGE,
    NUM_TOKENS,
    REFUSES,
    BenchServer,
    Log,
    running_server,
)

T = TypeVar("T")

STREAM_SECONDS = FIRST_DELAY_SECONDS + GAP_SECONDS * (NUM_TOKENS - 1)
# The event loop's timers may fire this much early.
CLOCK_SECONDS = 0.002


@pytest.fixture
def server() -> Iterator[BenchServer]:
    with running_server() as running:
        yield running


def in_client(work: Callable[[httpx.AsyncClient], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_client(timeout_seconds=10) as client:
            return await work(client)

    return asyncio.run(run())


def body_for(target: Target) -> bytes:
    return make_body(target, "hello", WORKLOADS["W5"])


def ask_once(server: BenchServer, model: str) -> Outcome:
    target = Target("server", server.base_url, model)
    return in_client(lambda client: ask(client, target, body_for(target)))


def test_times_are_those_the_server_took(server: BenchServer) -> None:
    answer = ask_once(server, "model")
    assert isinstance(answer, Answer)
    assert answer.first_token_seconds > FIRST_DELAY_SECONDS - CLOCK_SECONDS
    assert answer.total_seconds > STREAM_SECONDS - CLOCK_SECONDS
    assert len(answer.gaps_seconds) == NUM_TOKENS - 1
    spent_in_gaps = answer.total_seconds - answer.first_token_seconds
    # Not each gap: a client that was late for one token is early for the next.
    assert sum(answer.gaps_seconds) <= spent_in_gaps
    assert sum(answer.gaps_seconds) > spent_in_gaps / 2


def test_times_of_a_server_without_delays_are_short(server: BenchServer) -> None:
    answers = [ask_once(server, INSTANT) for _ in range(5)]
    assert all(isinstance(answer, Answer) for answer in answers)
    assert min(answer.total_seconds for answer in answers if isinstance(answer, Answer)) < 0.04


def test_tokens_are_counted_by_usage(server: BenchServer) -> None:
    answer = ask_once(server, INSTANT)
    assert isinstance(answer, Answer)
    assert (answer.num_tokens, answer.num_chunks) == (NUM_TOKENS + 1, NUM_TOKENS)
    assert (answer.num_prompt_tokens, answer.has_usage) == (7, True)
    assert answer.finish_reason == "length"


def test_tokens_are_counted_by_chunks_where_usage_is_not_sent(server: BenchServer) -> None:
    answer = ask_once(server, NO_USAGE)
    assert isinstance(answer, Answer)
    assert (answer.num_tokens, answer.has_usage) == (NUM_TOKENS, False)


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (REFUSES, "404 no such model"),
        (FAILS_IN_STREAM, "worker_lost"),
        (BREAKS_OFF, "without a finish_reason"),
    ],
)
def test_an_incomplete_answer_is_a_failure(server: BenchServer, model: str, reason: str) -> None:
    outcome = ask_once(server, model)
    assert isinstance(outcome, Failure)
    assert reason in outcome.reason


def test_a_server_that_is_not_there_is_a_failure() -> None:
    outcome = ask_once(BenchServer("http://127.0.0.1:9", Log()), "model")
    assert isinstance(outcome, Failure)
    assert "ConnectError" in outcome.reason


def test_a_plain_target_gets_no_extension(server: BenchServer) -> None:
    plain = Target("server", server.base_url, INSTANT, plain=True)
    full = Target("server", server.base_url, INSTANT)
    in_client(lambda client: ask(client, plain, body_for(plain)))
    in_client(lambda client: ask(client, full, body_for(full)))
    plain_body, full_body = server.log.bodies
    assert not {"ignore_eos", "stream_options"} & plain_body.keys()
    assert full_body["ignore_eos"] is True
    assert full_body["stream_options"] == {"include_usage": True}


def test_the_closed_loop_keeps_as_many_in_flight_as_asked(server: BenchServer) -> None:
    target = Target("server", server.base_url, "model")
    bodies = [body_for(target)] * 6
    outcomes = in_client(lambda client: closed_loop(client, target, bodies, concurrency=3))
    assert len(outcomes) == 6
    assert server.log.most_in_flight == 3


def test_waiting_for_a_place_counts_at_a_fixed_rate(server: BenchServer) -> None:
    target = Target("server", server.base_url, "model")
    bodies = [body_for(target)] * 3
    outcomes = in_client(
        lambda client: fixed_rate(client, target, bodies, (0.0, 0.0, 0.0), concurrency=1)
    )
    totals = sorted(answer.total_seconds for answer in outcomes if isinstance(answer, Answer))
    assert totals[-1] > 3 * (STREAM_SECONDS - CLOCK_SECONDS)
    assert server.log.most_in_flight == 1


def test_a_fixed_rate_does_not_wait_for_answers(server: BenchServer) -> None:
    target = Target("server", server.base_url, "model")
    bodies = [body_for(target)] * 4
    in_client(
        lambda client: fixed_rate(client, target, bodies, (0.0, 0.005, 0.01, 0.015), concurrency=4)
    )
    assert server.log.most_in_flight > 1
