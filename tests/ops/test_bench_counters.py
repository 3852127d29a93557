"""Counters of a server, whichever server it is."""

import asyncio

from ops.bench.client import Target
from ops.bench.counters import growth, parse_counters, read_counters
from ops.bench.rounds import open_client
from tests.ops.bench_server import running_server

METRICS = """\
# HELP server:image_cache_hits_total hits
# TYPE server:image_cache_hits_total counter
server:image_cache_hits_total{engine="0",model="a b"} 3.0
server:image_cache_hits_total{engine="1",model="a b"} 4.0
images_encoded_total 1e3
cache_usage_ratio 0.5
http_requests_total{code="200"} 9.0
"""


def read(base_url: str) -> dict[str, float]:
    async def run() -> dict[str, float]:
        async with open_client(timeout_seconds=5) as client:
            return await read_counters(client, Target("server", base_url, "model"))

    return asyncio.run(run())


def test_counters_about_images_are_summed_over_labels_and_others_left_out() -> None:
    assert parse_counters(METRICS) == {
        "server:image_cache_hits_total": 7.0,
        "images_encoded_total": 1000.0,
    }


def test_growth_is_by_counter_and_a_new_one_starts_at_zero() -> None:
    assert growth({"a_total": 2.0}, {"b_total": 5.0, "a_total": 3.0}) == {
        "a_total": 1.0,
        "b_total": 5.0,
    }


def test_counters_are_read_from_beside_the_api() -> None:
    with running_server() as server:
        assert read(server.base_url) == {"bench_images_encoded_total": 0.0}


def test_a_server_without_metrics_has_no_counters() -> None:
    assert read("http://127.0.0.1:9/v1") == {}
