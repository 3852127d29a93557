"""What errors count for, and whose time a stage is."""

import threading
from contextvars import copy_context

import pytest

from gateway.errors import ImageRejected, Overloaded, RateLimited, ServeError, WorkerLost
from gateway.observe.metrics import Metrics
from gateway.observe.timeline import Pass, current_timeline, keep_timeline


@pytest.mark.parametrize(
    ("error", "limit"),
    [
        (Overloaded.by("max_kv_demand", 5, 4), "max_kv_demand"),
        (Overloaded("the worker's inbox is full"), "worker_inbox"),
        (RateLimited("", kind="images", retry_after_seconds=1), "key_images"),
    ],
)
def test_a_refusal_counts_for_the_limit_that_was_hit(error: ServeError, limit: str) -> None:
    metrics = Metrics()
    value = metrics.registry.get_sample_value
    assert value("fovea_refusals_total", {"limit": limit}) == 0  # a rate needs the zero
    metrics.count_error(error)
    assert value("fovea_refusals_total", {"limit": limit}) == 1


def test_a_refused_image_counts_by_stage_and_code_and_other_errors_for_no_limit() -> None:
    metrics = Metrics()
    metrics.count_error(ImageRejected("", index=0, stage="decode", param="p", code="damaged"))
    metrics.count_error(WorkerLost("gone"))
    value = metrics.registry.get_sample_value
    labels = {"stage": "decode", "code": "damaged"}
    assert value("fovea_images_rejected_total", labels) == 1
    (refusals,) = metrics.refusals.collect()
    assert sum(sample.value for sample in refusals.samples) == 0


def test_a_worker_that_has_told_nothing_yet_or_died_has_no_load() -> None:
    metrics = Metrics(("worker-0",))
    value = metrics.registry.get_sample_value
    for name in ("running", "waiting", "waiting_images"):
        assert value(f"fovea_worker_{name}", {"worker": "worker-0"}) == 0
    metrics.worker_running.labels("worker-0").set(3)
    metrics.forget_worker("worker-0")
    assert value("fovea_worker_running", {"worker": "worker-0"}) == 0


def spend(metrics: Metrics, stage: str, seconds: float) -> None:
    metrics.observe(Pass(stage, seconds), current_timeline())


def test_a_stage_counts_for_the_request_around_it_also_from_a_thread() -> None:
    metrics = Metrics()
    spend(metrics, "place", 8.0)
    with keep_timeline() as first:
        spend(metrics, "fetch", 0.25)
        work = threading.Thread(
            target=copy_context().run, args=(spend, metrics, "fetch", 0.5), daemon=True
        )
        work.start()
        work.join()
    with keep_timeline() as second:
        metrics.observe(Pass("fetch", 2.0), first)
    assert first.stages() == {"fetch": 2.75}
    assert second.stages() == {}
    value = metrics.registry.get_sample_value
    assert value("fovea_stage_seconds_sum", {"stage": "fetch"}) == 2.75
    assert value("fovea_stage_seconds_sum", {"stage": "place"}) == 8.0
