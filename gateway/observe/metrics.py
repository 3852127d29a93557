"""Counters, gauges and histograms of every stage, in one registry that /metrics shows."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

from gateway.answers.sse import Usage
from gateway.errors import ImageRejected, Overloaded, RateLimited, ServeError
from gateway.observe.timeline import Pass, Timeline, current_timeline

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)

# A rate needs the zero before the first event, so these are shown from the start.
_LIMITS = (
    "max_running_requests",
    "max_image_requests",
    "max_queued_pixels",
    "max_bytes_in_flight",
    "max_kv_demand",
    "worker_inbox",
    "key_concurrency",
    "key_requests",
    "key_images",
    "key_tokens",
)
_CUTS = ("stalled", "invalid_http", "head_timeout", "head_too_large")


class Metrics:
    """All metrics of one gateway. Owned by the event loop; made once and passed in."""

    def __init__(self, workers: tuple[str, ...] = ()) -> None:
        # A second series beside each counter, with the time it was made, tells nobody anything.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library types it not
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, open files and CPU time of the gateway
        self._add_requests()
        self._add_answers()
        self._add_admission()
        self._add_stages()
        self._add_images()
        self._add_workers()
        self._add_memory()
        for name in workers:
            self.worker_lost.labels(name)
            self._clear_load(name)
        for limit in _LIMITS:
            self.refusals.labels(limit)
        for reason in _CUTS:
            self.connections_cut.labels(reason)

    def _add_requests(self) -> None:
        self.ready = self._gauge("fovea_ready", "1 while requests are let in, as /ready says.")
        self.requests_running = self._gauge("fovea_requests_running", "Requests in work.")
        self.connections = self._gauge("fovea_connections", "Connections of clients that are open.")
        self.connections_cut = Counter(
            "fovea_connections_cut",
            "Connections cut without a word: the client did not read (stalled), or sent nonsense "
            "while an answer was on its way (its error code).",
            ["reason"],
            registry=self.registry,
        )
        self.requests = Counter(
            "fovea_requests",
            "Requests that ended, by status and error code (empty: none).",
            ["status", "code"],
            registry=self.registry,
        )
        self.retries = self._counter(
            "fovea_request_retries", "Times a request was begun again after a worker's death."
        )
        self.fenced = self._gauge("fovea_fenced", "Prompts and images refused after deaths.")
        self.request_seconds = self._histogram("fovea_request_seconds", "Whole request.")
        self.first_token_seconds = self._histogram(
            "fovea_first_token_seconds", "From the request's arrival to its first token."
        )
        self.inter_token_seconds = self._histogram(
            "fovea_inter_token_seconds", "Between two token events of one answer."
        )

    def _add_answers(self) -> None:
        self.answers = Counter(
            "fovea_answers",
            "Answers that came to their end, each choice counted, by finish reason.",
            ["reason"],
            registry=self.registry,
        )
        self.prompt_tokens = self._counter("fovea_prompt_tokens", "Prompt tokens of answers.")
        self.image_tokens = self._counter("fovea_image_tokens", "Image tokens among them.")
        self.cached_tokens = self._counter(
            "fovea_cached_tokens", "Prompt tokens that the KV cache had, of earlier prompts."
        )
        self.completion_tokens = self._counter("fovea_completion_tokens", "Tokens generated.")

    def _add_admission(self) -> None:
        self.refusals = Counter(
            "fovea_refusals",
            "Requests refused with 429, by the limit that was hit; key_ stands before a key's own.",
            ["limit"],
            registry=self.registry,
        )
        self.image_requests = self._gauge(
            "fovea_image_requests_running", "Requests in work that have images, by choices."
        )
        self.held_bytes = self._gauge(
            "fovea_held_bytes", "Bytes of bodies and encoded images that requests hold."
        )
        self.queued_pixels = self._gauge(
            "fovea_queued_pixels", "Pixels of images that are not encoded yet."
        )
        self.demanded_tokens = self._gauge(
            "fovea_demanded_tokens", "Tokens that requests in work may come to hold of KV caches."
        )

    def _add_stages(self) -> None:
        self.stage_seconds = Histogram(
            "fovea_stage_seconds",
            "Time in one stage of the journey, for one request or image.",
            ["stage"],
            buckets=_SECONDS,
            registry=self.registry,
        )

    def _add_images(self) -> None:
        self.images_encoded = self._counter("fovea_images_encoded", "Images encoded by owners.")
        self.image_bytes = self._counter("fovea_image_bytes", "Encoded image bytes taken in.")
        self.image_pixels = self._counter("fovea_image_pixels", "Source pixels of images.")
        self.image_patches = self._counter("fovea_image_patches", "Patches sent to owners.")
        self.payloads = Counter(
            "fovea_payloads",
            "Images handed to owners, by the form in which they travelled.",
            ["payload"],
            registry=self.registry,
        )
        self.payload_bytes = Counter(
            "fovea_payload_bytes",
            "Bytes of these images in that form.",
            ["payload"],
            registry=self.registry,
        )
        self.embedding_lookups = Counter(
            "fovea_embedding_lookups",
            "Images whose embeddings were there (hit), were not (miss), were not needed (covered).",
            ["result"],
            registry=self.registry,
        )
        self.embedding_evictions = self._counter(
            "fovea_embedding_evictions", "Images whose kept embeddings were dropped."
        )
        self.embedding_bytes = Counter(
            "fovea_embedding_bytes",
            "Embeddings that engines took in, by way: same_process, arena or cuda_ipc.",
            ["transport"],
            registry=self.registry,
        )
        self.images_rejected = Counter(
            "fovea_images_rejected",
            "Images refused, by stage and error code.",
            ["stage", "code"],
            registry=self.registry,
        )

    def _add_workers(self) -> None:
        self.worker_ready = self._worker_gauge("fovea_worker_ready", "1 while it takes jobs.")
        self.worker_lost = Counter(
            "fovea_worker_lost", "Times the worker died.", ["worker"], registry=self.registry
        )
        self.worker_running = self._worker_gauge("fovea_worker_running", "Sequences in a step.")
        self.worker_waiting = self._worker_gauge("fovea_worker_waiting", "Jobs waiting.")
        self.worker_waiting_images = self._worker_gauge(
            "fovea_worker_waiting_images", "Images among the jobs waiting."
        )
        self.engine_choices = Counter(
            "fovea_engine_choices",
            "Prompts given to an engine, for it knows how they begin (known) or is the least "
            "loaded (load).",
            ["worker", "reason"],
            registry=self.registry,
        )
        self.placements = Counter(
            "fovea_placements", "Images placed on an owner.", ["worker"], registry=self.registry
        )
        self.owner_load = self._worker_gauge(
            "fovea_owner_load_patches",
            "Cost, in patches, of images placed and not encoded yet; large ones count more.",
        )

    def _add_memory(self) -> None:
        self.kv_capacity_tokens = self._worker_gauge(
            "fovea_kv_capacity_tokens", "KV tokens that the engine can hold; 0 for owners."
        )
        self.kv_used_tokens = self._worker_gauge("fovea_kv_used_tokens", "KV tokens in use.")
        self.kv_cached_tokens = self._worker_gauge(
            "fovea_kv_cached_tokens", "KV tokens kept for prompts that begin alike."
        )
        self.embedding_idle_bytes = self._worker_gauge(
            "fovea_embedding_idle_bytes", "Embeddings that are kept though nobody needs them."
        )
        self.arena_used_bytes = self._worker_gauge(
            "fovea_arena_used_bytes", "Arena bytes in use by requests."
        )
        self.pool_used_bytes = self._worker_gauge(
            "fovea_feature_pool_used_bytes", "Feature pool bytes in use by requests."
        )

    def count_usage(self, usage: Usage) -> None:
        """Count the tokens of one request."""
        self.prompt_tokens.inc(usage.prompt_tokens)
        self.image_tokens.inc(usage.image_tokens)
        self.cached_tokens.inc(usage.cached_tokens)
        self.completion_tokens.inc(usage.completion_tokens)

    def count_error(self, error: ServeError) -> None:
        """Count what an error tells beside its status and code: limits and stages."""
        match error:
            case Overloaded(hit=dict() as hit):
                self.refusals.labels(hit["name"]).inc()
            case Overloaded():
                self.refusals.labels("worker_inbox").inc()
            case RateLimited():
                self.refusals.labels(f"key_{error.type}").inc()
            case ImageRejected():
                self.images_rejected.labels(error.stage, error.code).inc()
            case _:
                pass

    def forget_worker(self, name: str) -> None:
        """Count a death; what the worker last said of its load no longer holds."""
        self.worker_lost.labels(name).inc()
        self._clear_load(name)

    def _clear_load(self, name: str) -> None:
        for gauge in (
            self.worker_running,
            self.worker_waiting,
            self.worker_waiting_images,
            self.kv_used_tokens,
            self.kv_cached_tokens,
        ):
            gauge.labels(name).set(0)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, registry=self.registry)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=_SECONDS, registry=self.registry)

    def _worker_gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, ["worker"], registry=self.registry)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Observe the time spent inside the block as one pass of the stage."""
        begun = time.monotonic()
        try:
            yield
        finally:
            ended = time.monotonic()
            self.observe(Pass(name, ended - begun, ended=ended), current_timeline())

    def observe(self, one: Pass, timeline: Timeline) -> None:
        """A pass of a stage has ended, for the request of this timeline."""
        self.stage_seconds.labels(one.stage).observe(one.seconds)
        timeline.passes.append(one)
