"""When the passes of a request were."""

import time

import pytest

from gateway.observe.metrics import Metrics
from gateway.observe.timeline import keep_timeline, passes_of_worker


def test_stages_of_a_worker_lie_end_to_end_up_to_now() -> None:
    before = time.monotonic()
    passes = passes_of_worker("owner-0", {"queue": 3.0, "encode": 0.5, "digest": 0.0})
    assert [(each.stage, each.seconds, each.worker) for each in passes] == [
        ("queue", 3.0, "owner-0"),
        ("encode", 0.5, "owner-0"),
        ("digest", 0.0, "owner-0"),
    ]
    queue, encode, digest = passes
    assert before <= digest.ended <= time.monotonic()
    assert encode.ended == pytest.approx(digest.ended)
    assert queue.ended == pytest.approx(encode.ended - 0.5)


def test_a_stage_in_the_gateway_ends_when_its_block_does() -> None:
    with keep_timeline() as times:
        begun = time.monotonic()
        with Metrics().stage("fetch"):
            inside = time.monotonic()
    (fetch,) = times.passes
    assert begun <= fetch.ended - fetch.seconds <= inside <= fetch.ended <= time.monotonic()
    assert fetch.worker == ""
