"""The names of vLLM hold the values of ours."""

from gateway.observe.metrics import Metrics
from gateway.observe.serving_names import add_serving_names
from gateway.observe.timeline import Pass, Timeline


def named() -> Metrics:
    metrics = Metrics(("worker-0", "worker-1"))
    add_serving_names(metrics, "a-model")
    return metrics


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"model_name": "a-model", **labels})


def test_counters_and_histograms_are_those_of_ours() -> None:
    metrics = named()
    metrics.prompt_tokens.inc(7)
    metrics.first_token_seconds.observe(0.3)
    metrics.answers.labels("length").inc(2)
    assert value(metrics, "vllm:prompt_tokens_total") == 7
    assert value(metrics, "vllm:time_to_first_token_seconds_sum") == 0.3
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.25") == 0
    assert value(metrics, "vllm:time_to_first_token_seconds_bucket", le="0.5") == 1
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 2


def test_one_stage_of_many_is_told_by_its_own_name() -> None:
    metrics = named()
    metrics.observe(Pass("prefill", 0.5), Timeline())
    metrics.observe(Pass("generate", 4.0), Timeline())
    assert value(metrics, "vllm:request_prefill_time_seconds_sum") == 0.5
    assert value(metrics, "vllm:request_decode_time_seconds_sum") == 4.0


def test_engines_are_told_without_the_images_that_wait_and_owners_are_not() -> None:
    metrics = named()
    metrics.kv_capacity_tokens.labels("worker-0").set(0)
    metrics.kv_capacity_tokens.labels("worker-1").set(200)
    metrics.kv_used_tokens.labels("worker-1").set(50)
    metrics.worker_running.labels("worker-1").set(3)
    metrics.worker_waiting.labels("worker-1").set(9)
    metrics.worker_waiting_images.labels("worker-1").set(4)
    assert value(metrics, "vllm:kv_cache_usage_perc", engine="worker-1") == 0.25
    assert value(metrics, "vllm:num_requests_running", engine="worker-1") == 3
    assert value(metrics, "vllm:num_requests_waiting", engine="worker-1") == 5
    assert value(metrics, "vllm:num_requests_running", engine="worker-0") is None


def test_what_is_counted_first_after_the_start_is_seen_as_well() -> None:
    metrics = named()
    assert value(metrics, "vllm:generation_tokens_total") == 0
    metrics.completion_tokens.inc()
    assert value(metrics, "vllm:generation_tokens_total") == 1
