"""The life of the gateway process: start workers and HTTP, say when ready, drain, stop."""

import asyncio
import logging
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from config.settings import ServerSettings, Settings
from config.workers import WorkerSpec
from gateway.app import build_app
from gateway.edge.admit import Admission
from gateway.edge.key_ring import KeyRing
from gateway.edge.keys import KeyFileError
from gateway.edge.protocol import ClientLimits, Http1
from gateway.edge.sockets import StartError, allow_many_files, url_of
from gateway.encoding.embeddings import EmbeddingStore
from gateway.encoding.encode import Encoder
from gateway.encoding.flight import Payloads, Pilot
from gateway.encoding.payload import PayloadRule, image_backend
from gateway.encoding.traces import MAX_TRACES, TraceBook
from gateway.images.decode_pool import DecodePool
from gateway.images.fetch import Fetcher
from gateway.images.header import set_up_pillow
from gateway.jobs.dispatch import Dispatcher
from gateway.observe.metrics import Metrics
from gateway.observe.serving_names import add_serving_names
from gateway.prompts.checkpoint import load_checkpoint
from gateway.services import Services
from gateway.start.preflight import check_context, check_devices, open_spans
from gateway.start.progress import LoadProgress
from gateway.start.weights import check_weights
from workers.devices import can_reach, count_gpus
from workers.messages import FromWorker, Loading, Ready, StartFailed
from workers.pool import Pool
from workers.transport import Transport, TransportError, choose_transport

log = logging.getLogger(__name__)

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_POLL_SECONDS = 0.02
# A signal to a whole process group arrives twice where a parent such as make passes it on.
_ONE_SIGNAL_SECONDS = 1.0
# Time that requests which are cut short get to send their error.
_LAST_WORDS_SECONDS = 1.0
# Time that workers get to leave by themselves.
_LEAVE_SECONDS = 5.0


class _HttpServer(uvicorn.Server):
    """uvicorn without its signal handling, which would end the process by the signal itself."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _ignore_signals(loop: asyncio.AbstractEventLoop) -> None:
    """All is done; a signal that comes now shall not spoil the exit status."""
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)


def _read_keys(settings: ServerSettings) -> KeyRing | None:
    if not settings.api_keys_file:
        if settings.host not in _LOOPBACK:
            log.warning("whoever reaches %s is let in: FOVEA_API_KEYS_FILE is unset", settings.host)
        return None
    try:
        return KeyRing(Path(settings.api_keys_file))
    except KeyFileError as error:
        raise StartError(f"FOVEA_API_KEYS_FILE={settings.api_keys_file}: {error}") from error


class Gateway:
    """Everything that lives as long as the process. Owned by the event loop."""

    def __init__(
        self,
        settings: Settings,
        listener: socket.socket,
        begun: float,
        make_payloads: Callable[[int], Payloads] = PayloadRule,
    ) -> None:
        """`make_payloads` is given the family's bound of pixels, see `gateway.encoding.payload`."""
        self._settings = settings
        self._listener = listener
        self._begun = begun
        self._make_payloads = make_payloads
        self._keys = _read_keys(settings.server)
        self._spans = open_spans(settings.server.traces_endpoint)
        num_gpus = count_gpus()
        specs = settings.worker_specs(num_gpus)
        check_devices(specs, num_gpus)
        self._progress = LoadProgress(tuple(spec.name for spec in specs))
        self._checkpoint = load_checkpoint(settings.model.model)
        check_weights(settings.model.model)
        check_context(settings.model.max_context_tokens, self._checkpoint.layout.max_context_tokens)
        self._pool = self._make_pool(specs)
        self._services = self._make_services(specs)
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._stopped_at: float | None = None

    def _make_pool(self, specs: tuple[WorkerSpec, ...]) -> Pool:
        try:
            return Pool(
                self._settings,
                specs,
                on_event=self._on_event,
                on_lost=self._on_lost,
                vocabulary=self._checkpoint.vocabulary(),
                transport=self._transport(specs),
            )
        except TransportError as error:
            raise StartError(str(error)) from error
        except (OSError, OverflowError) as error:
            raise StartError(
                f"FOVEA_ARENA_BYTES={self._settings.workers.arena_bytes}: cannot set up so much "
                f"shared memory for each of {len(specs)} workers"
            ) from error

    def _transport(self, specs: tuple[WorkerSpec, ...]) -> Transport:
        transport = choose_transport(self._settings.workers.feature_transport, specs, can_reach)
        log.info("embeddings travel by %s", transport)
        return transport

    def _make_services(self, specs: tuple[WorkerSpec, ...]) -> Services:
        settings, checkpoint = self._settings, self._checkpoint
        metrics = Metrics(tuple(view.name for view in self._pool.fleet().workers))
        name = settings.server.served_model_name or settings.model.model.resolve().name
        if settings.server.serving_names:
            add_serving_names(metrics, name)
        dispatcher = Dispatcher(self._pool, metrics, settings.workers.fence_seconds)
        decode_pool = DecodePool(settings.images.decode_threads)
        store = EmbeddingStore(self._pool.places, settings.vision.embedding_cache_share, metrics)
        payloads = self._make_payloads(checkpoint.layout.max_resized_pixels)
        pilot = Pilot(dispatcher, decode_pool, payloads, metrics, settings.server.request_seconds)
        return Services(
            settings=settings,
            checkpoint=checkpoint,
            served_model_name=name,
            backend=image_backend(specs, settings.images),
            metrics=metrics,
            admission=Admission(settings.server, settings.limits),
            fetcher=Fetcher(settings.images),
            decode_pool=decode_pool,
            pool=self._pool,
            dispatcher=dispatcher,
            store=store,
            encoder=Encoder(self._pool, store, pilot, metrics),
            traces=TraceBook(MAX_TRACES if settings.engine.prefix_cache else 0),
            keys=self._keys,
            spans=self._spans,
        )

    async def run(self) -> None:
        """Serve until SIGTERM or SIGINT, then drain.

        Raises:
            StartError: a worker could not start.
        """
        set_up_pillow(self._settings.images)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        server = _HttpServer(self._uvicorn_config())
        http = asyncio.create_task(server.serve(sockets=[self._listener]))
        try:
            await self._pool.start()
            self._say_starting()
            await self._until_ready()
            await self._stop.wait()
            await self._drain()
        finally:
            server.should_exit = True
            server.force_exit = self._stop_now.is_set()
            await http
            await self._services.fetcher.close()
            await self._pool.stop(0 if self._stop_now.is_set() else _LEAVE_SECONDS)
            if self._spans is not None:
                self._spans.close(0 if self._stop_now.is_set() else _LAST_WORDS_SECONDS)
            _ignore_signals(loop)
            log.info("stopped")

    def _uvicorn_config(self) -> uvicorn.Config:
        return uvicorn.Config(
            build_app(self._services),
            http=self._protocol(),
            ws="none",
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
        )

    def _protocol(self) -> Any:
        clients, server = self._settings.clients, self._settings.server
        limits = ClientLimits(
            head_seconds=clients.head_seconds,
            body_seconds=server.body_seconds,
            idle_seconds=clients.idle_seconds,
            stalled_seconds=clients.stalled_seconds,
            max_head_bytes=clients.max_head_bytes,
            max_connections=min(clients.max_connections, allow_many_files() * 3 // 4),
        )
        return partial(Http1, limits=limits, metrics=self._services.metrics)

    async def _until_ready(self) -> None:
        ready = asyncio.create_task(self._pool.wait_ready())
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({ready, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if not ready.done():
            ready.cancel()
            return
        await ready
        self._say_ready()

    def _say_starting(self) -> None:
        for view in self._pool.fleet().workers:
            log.info("starting %s on %s: %s", view.name, view.device, " and ".join(view.roles))

    def _say_ready(self) -> None:
        seconds = time.monotonic() - self._begun
        name = self._services.served_model_name
        log.info("ready after %.1f s", seconds)
        print(  # noqa: T201 - the one line that a person at the terminal waits for
            f"Fovea is ready after {seconds:.1f} s. "
            f"Send requests for the model {name!r} to {url_of(self._listener)}/v1/chat/completions",
            flush=True,
        )

    def _on_signal(self) -> None:
        now = time.monotonic()
        if self._stopped_at is None:
            self._stopped_at = now
        elif now - self._stopped_at >= _ONE_SIGNAL_SECONDS:
            self._stop_now.set()
        self._services.draining = True
        self._stop.set()

    async def _drain(self) -> None:
        """Let running requests end; another signal or the time limit fails them by name."""
        running = self._services.admission
        if running.num_running:
            log.info(
                "stopping: waiting up to %g s for the %d running; another signal ends them now",
                self._settings.server.drain_seconds,
                running.num_running,
            )
        await self._until_idle(self._settings.server.drain_seconds)
        if running.num_running:
            log.warning("stopping: cutting short the %d running", running.num_running)
            self._services.cut_short()
            await self._until_idle(_LAST_WORDS_SECONDS)

    async def _until_idle(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self._services.admission.num_running and time.monotonic() < limit:
            if self._stop_now.is_set():
                return
            await asyncio.sleep(_POLL_SECONDS)

    def _on_event(self, worker: int, event: FromWorker) -> None:
        match event:
            case Loading():
                self._progress.update(worker, event.done, event.total)
            case Ready():
                self._progress.finish(worker)
                self._services.revival.tell()
            case StartFailed():
                self._progress.finish(worker)
            case _:
                self._services.dispatcher.on_event(worker, event)

    def _on_lost(self, worker: int) -> None:
        self._progress.finish(worker)
        self._services.store.drop_lost(worker)
        self._services.dispatcher.on_lost(worker)
        self._services.traces.forget(worker)
        name = self._pool.fleet().workers[worker].name
        self._services.metrics.forget_worker(name)


async def serve(settings: Settings, listener: socket.socket, begun: float) -> None:
    """Run the gateway to its end."""
    await Gateway(settings, listener, begun).run()
