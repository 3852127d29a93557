"""Interleaved rounds: the same requests for each target, one target at a time, turn about."""

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from ops.bench import rounds
from ops.bench.client import Target
from ops.bench.images import Size
from ops.bench.rounds import Round, arrival_delays, interleave, open_client, warm_up
from ops.bench.workload import Workload, make_contents
from tests.ops.bench_server import INSTANT, REFUSES, BenchServer, running_server

LOAD = Workload((Size(18, 10),), 2, 8, num_requests=2, num_rounds=3, num_warmup=1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[BenchServer]:
    monkeypatch.setattr(rounds, "REST_SECONDS", 0.0)
    with running_server() as running:
        yield running


def measure(targets: Sequence[Target], load: Workload = LOAD) -> list[Round]:
    contents = make_contents(load, seed=1)[load.num_warmup :]

    async def run() -> list[Round]:
        async with open_client(timeout_seconds=10) as client:
            return [each async for each in interleave(client, targets, contents, load, seed=1)]

    return asyncio.run(run())


def three_targets(server: BenchServer) -> list[Target]:
    return [Target(name, server.base_url, INSTANT) for name in ("a", "b", "c")]


def test_who_comes_first_moves_on_each_round(server: BenchServer) -> None:
    measured = measure(three_targets(server))
    assert [each.target for each in measured] == list("abcbcacab")
    assert [each.turn for each in measured] == [0] * 3 + [1] * 3 + [2] * 3


def test_targets_of_a_round_get_the_same_requests_and_rounds_new_ones(server: BenchServer) -> None:
    measure(three_targets(server))
    sent = [json.dumps(body["messages"]) for body in server.log.bodies]
    shares = [sorted(sent[start : start + 2]) for start in range(0, len(sent), 2)]
    for turn in range(3):
        assert shares[3 * turn] == shares[3 * turn + 1] == shares[3 * turn + 2]
    assert len(set(sent)) == 3 * LOAD.num_requests


def test_only_one_target_is_loaded_at_a_time(server: BenchServer) -> None:
    targets = [Target(name, server.base_url, "model") for name in ("a", "b")]
    measure(targets, replace(LOAD, num_rounds=1))
    assert server.log.most_in_flight == LOAD.concurrency


def test_a_machine_is_watched_only_where_every_pid_is_known(server: BenchServer) -> None:
    known = Target("known", server.base_url, INSTANT, pid=os.getpid())
    unknown = Target("unknown", server.base_url, INSTANT)
    assert all(each.foreign_cores is not None for each in measure([known]))
    assert all(each.foreign_cores is None for each in measure([known, unknown]))


def test_a_failing_warm_up_is_told(server: BenchServer) -> None:
    async def run(model: str) -> int:
        target = Target("server", server.base_url, model)
        async with open_client(timeout_seconds=10) as client:
            return len(await warm_up(client, target, ["one", "two"], LOAD))

    assert asyncio.run(run(REFUSES)) == 2
    assert asyncio.run(run(INSTANT)) == 0


def test_arrivals_come_at_the_rate_asked_for_and_are_repeatable() -> None:
    delays = arrival_delays(4000, requests_per_second=50.0, seed=3)
    assert delays == arrival_delays(4000, requests_per_second=50.0, seed=3)
    assert list(delays) == sorted(delays)
    assert delays[-1] == pytest.approx(80.0, rel=0.1)
