"""The long-lived parts of one gateway, made once at start and passed to every request."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

import anyio

from config.settings import Settings
from gateway.edge.admit import Admission
from gateway.edge.key_ring import KeyRing
from gateway.encoding.embeddings import EmbeddingStore
from gateway.encoding.encode import Encoder
from gateway.encoding.names import NameBook
from gateway.encoding.traces import TraceBook
from gateway.errors import NotReady
from gateway.images.decode_pool import DecodePool
from gateway.images.fetch import Fetcher
from gateway.jobs.dispatch import Dispatcher
from gateway.jobs.revival import Revival
from gateway.observe.metrics import Metrics
from gateway.prompts.checkpoint import Checkpoint
from gateway.structured.checking import GrammarChecks
from workers.families.plan import Backend
from workers.pool import Pool

if TYPE_CHECKING:
    from gateway.observe.spans import Spans


@dataclass(slots=True)
class Services:
    """Owned by the gateway's event loop."""

    settings: Settings
    checkpoint: Checkpoint
    served_model_name: str
    backend: Backend  # where images are decoded and preprocessed
    metrics: Metrics
    admission: Admission
    fetcher: Fetcher
    decode_pool: DecodePool
    pool: Pool
    dispatcher: Dispatcher
    store: EmbeddingStore
    encoder: Encoder
    traces: TraceBook = field(default_factory=TraceBook)
    keys: KeyRing | None = None  # without, everybody is let in
    spans: "Spans | None" = None  # without, nobody wants traces
    names: NameBook = field(default_factory=NameBook)
    grammar_checks: GrammarChecks = field(default_factory=GrammarChecks)
    revival: Revival = field(default_factory=Revival)
    arrivals: Iterator[int] = field(default_factory=count)  # numbers for requests as they come
    digest_key: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    draining: bool = False
    running: set[anyio.CancelScope] = field(default_factory=set)  # one for each request in work
    is_cut: bool = False  # whether those were ended because time to drain ran out

    def is_ready(self) -> bool:
        """Whether each role has a worker that takes jobs and the gateway is not stopping."""
        return not self.draining and self.pool.fleet().is_ready

    def cut_short(self) -> None:
        """End every request in work, wherever it is."""
        self.is_cut = True
        for scope in self.running:
            scope.cancel()

    def max_context_tokens(self) -> int:
        """Longest prompt plus answer that every ready engine takes.

        Raises:
            NotReady: no engine is ready.
        """
        engines = self.pool.fleet().holding("language")
        if not engines:
            raise NotReady("no worker with the role language is ready")
        return min(engine.max_context_tokens for engine in engines)

    def kv_cache_tokens(self) -> int:
        """Tokens that the KV caches of all ready engines hold together."""
        return sum(view.kv_cache_tokens for view in self.pool.fleet().holding("language"))

    def stated_context_tokens(self) -> int:
        """Longest prompt plus answer, also while no engine is ready."""
        if self.pool.fleet().holding("language"):
            return self.max_context_tokens()
        allowed = self.checkpoint.layout.max_context_tokens
        return min(self.settings.model.max_context_tokens or allowed, allowed)

    def sample_gauges(self) -> None:
        """Bring the gauges up to date that no event carries."""
        self.metrics.ready.set(self.is_ready())
        self.metrics.fenced.set(self.dispatcher.fence.num_fenced)
        self.metrics.image_requests.set(self.admission.num_with_images)
        self.metrics.held_bytes.set(self.admission.num_bytes)
        self.metrics.queued_pixels.set(self.admission.num_pixels)
        self.metrics.demanded_tokens.set(self.admission.num_tokens)
        loads = self.encoder.loads()
        for view in self.pool.fleet().workers:
            self.metrics.kv_capacity_tokens.labels(view.name).set(view.kv_cache_tokens)
            self.metrics.owner_load.labels(view.name).set(loads[view.index])
            self.metrics.worker_ready.labels(view.name).set(view.ready)
            idle = self.store.idle_bytes(view.index)
            self.metrics.embedding_idle_bytes.labels(view.name).set(idle)
            arena, place = self.pool.arena(view.index), self.store.place(view.index)
            used = arena.num_bytes_used - (idle if place is arena else 0)
            self.metrics.arena_used_bytes.labels(view.name).set(used)
            pool_used = 0 if place is arena else place.num_bytes_used - idle
            self.metrics.pool_used_bytes.labels(view.name).set(pool_used)
