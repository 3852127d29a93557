"""Our metrics in, the same values by vLLM's names out, for dashboards and scalers that know them.

A colon in a name is legal in Prometheus' text form, though its rules keep colons for recording
rules; so `FOVEA_SERVING_NAMES=0` leaves these names out.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import Counter, Gauge, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from gateway.observe.metrics import Metrics

Source = Counter | Gauge | Histogram
Labels = dict[str, str]


_STAGES = {
    "vllm:request_prefill_time_seconds": "prefill",
    "vllm:request_decode_time_seconds": "generate",
}


class ServingNames(Collector):
    """Reads the metrics whenever it is asked; holds no values of its own."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._metrics = metrics
        self._model = model

    def collect(self) -> Iterator[Metric]:
        """Every metric of the tables below, with vLLM's label for the model."""
        for name, source in self._equals():
            yield self._renamed(name, source)
        for name, stage in _STAGES.items():
            yield self._renamed(name, self._metrics.stage_seconds, {"stage": stage})
        ends = self._renamed("vllm:request_success", self._metrics.answers)
        for sample in ends.samples:
            sample.labels["finished_reason"] = sample.labels.pop("reason")
        yield ends
        yield from self._engines()

    def _equals(self) -> Iterable[tuple[str, Source]]:
        metrics = self._metrics
        return (
            ("vllm:time_to_first_token_seconds", metrics.first_token_seconds),
            ("vllm:inter_token_latency_seconds", metrics.inter_token_seconds),
            ("vllm:time_per_output_token_seconds", metrics.inter_token_seconds),  # its older name
            ("vllm:e2e_request_latency_seconds", metrics.request_seconds),
            ("vllm:prompt_tokens", metrics.prompt_tokens),
            ("vllm:generation_tokens", metrics.completion_tokens),
            ("vllm:prefix_cache_queries", metrics.prompt_tokens),
            ("vllm:prefix_cache_hits", metrics.cached_tokens),
        )

    def _engines(self) -> Iterator[Metric]:
        """Gauges of each engine; a worker without a KV cache is none."""
        metrics = self._metrics
        running = Metric("vllm:num_requests_running", "Sequences in a step.", "gauge")
        waiting = Metric("vllm:num_requests_waiting", "Prompts waiting.", "gauge")
        usage = Metric("vllm:kv_cache_usage_perc", "KV tokens in use, of 1.", "gauge")
        num_running, num_jobs = (
            _by_worker(metrics.worker_running),
            _by_worker(metrics.worker_waiting),
        )
        num_images = _by_worker(metrics.worker_waiting_images)
        num_used = _by_worker(metrics.kv_used_tokens)
        for worker, capacity in _by_worker(metrics.kv_capacity_tokens).items():
            if capacity:
                labels = {"model_name": self._model, "engine": worker}
                running.add_sample(running.name, labels, num_running[worker])
                waiting.add_sample(waiting.name, labels, num_jobs[worker] - num_images[worker])
                usage.add_sample(usage.name, labels, num_used[worker] / capacity)
        yield from (running, waiting, usage)

    def _renamed(self, name: str, source: Source, wanted: Labels | None = None) -> Metric:
        """A metric under another name; of its samples those with these labels, which go."""
        wanted = wanted or {}
        (metric,) = source.collect()
        renamed = Metric(name, metric.documentation, metric.type)
        for sample in metric.samples:
            if wanted.items() <= sample.labels.items():
                labels = {key: value for key, value in sample.labels.items() if key not in wanted}
                renamed.samples.append(
                    Sample(
                        name + sample.name.removeprefix(metric.name),
                        labels | {"model_name": self._model},
                        sample.value,
                    )
                )
        return renamed


def _by_worker(gauge: Gauge) -> defaultdict[str, float]:
    (metric,) = gauge.collect()
    found = {sample.labels["worker"]: sample.value for sample in metric.samples}
    return defaultdict(float, found)


def add_serving_names(metrics: Metrics, model: str) -> None:
    """Show the metrics also by vLLM's names, labelled with the name of the model."""
    metrics.registry.register(ServingNames(metrics, model))
