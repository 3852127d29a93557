"""One request and its answer: exactly one status, one end of stream, everything given back."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from gateway.answers.sse import Usage
from gateway.edge.admit import Permit
from gateway.edge.limits import account_of
from gateway.edge.request_id import request_id_of
from gateway.errors import BodyTimeout, BodyTooLarge, NotReady, ServeError
from gateway.observe.ended import Ended
from gateway.observe.timeline import Timeline, keep_timeline
from gateway.panic import name_panics
from gateway.prompts.prompt import Prompt
from gateway.routes.replies import EventStream, error_response, json_response
from gateway.schemas.ignored import IGNORED_HEADER, name_ignored
from gateway.talk import Asked, Desk, Language

log = logging.getLogger(__name__)

# A client that left before its answer; nobody receives it, metrics and logs show it.
_CLIENT_GONE = 499
# Bodies above this size are parsed in a thread, so that base64 does not hold the event loop.
_INLINE_BODY_BYTES = 64 * 1024
# Time that a client who does not read gets to take in an error.
_LAST_WORDS_SECONDS = 5.0


class Exchange(ABC):
    """Takes a body in and gives everything back. Owned by the request's task."""

    def __init__(
        self, desk: Desk, language: Language, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._services = desk.services
        self._language = language
        self._scope, self._receive, self._send = scope, receive, send
        self._stream = EventStream(send)
        self._request_id = request_id_of(scope)
        self._job_id = desk.job_id
        self._begun = desk.begun
        self._arrival = next(self._services.arrivals)
        self._headers: dict[str, str] = {}  # of an answer that goes well
        self._answered = False
        self._usage: Usage | None = None  # what was used, where it came to an answer

    async def run(self) -> None:
        """Answer the request, or say why not."""
        with self._services.metrics.requests_running.track_inprogress(), keep_timeline() as times:
            status, code = await self._run_to_its_end()
            self._observe(status, code, times)

    async def _run_to_its_end(self) -> tuple[int, str]:
        """Status and error code, which is empty where there was no error."""
        try:
            with name_panics():
                await self._run_until_gone()
        except ServeError as error:
            await self._fail(error)
            _forget_the_way(error)
            return error.status, error.code
        except Exception as error:
            log.exception("request %s failed", self._request_id)
            fault = ServeError("the gateway failed on this request")
            await self._fail(fault)
            _forget_the_way(error)
            return fault.status, fault.code
        return (200, "") if self._answered else (_CLIENT_GONE, "client_gone")

    def _observe(self, status: int, code: str, times: Timeline) -> None:
        seconds = time.monotonic() - self._begun
        self._services.metrics.requests.labels(str(status), code).inc()
        self._services.metrics.request_seconds.observe(seconds)
        outcome: dict[str, object] = {"status": status, "code": code}
        outcome |= {"seconds": round(seconds, 6), "stages": times.stages()}
        if self._usage is not None:
            outcome["usage"] = asdict(self._usage)
        fields = {"request_id": self._request_id, "job_id": self._job_id, **outcome}
        if self._services.spans is not None:
            fields |= self._services.spans.record(self._ended(status, code, times))
        log.info(
            "request %s, job %s: %d %s after %.3f s; stages: %s",
            self._request_id,
            self._job_id,
            status,
            code or "ok",
            seconds,
            ", ".join(f"{stage} {spent:.3f}" for stage, spent in times.stages().items()),
            extra={"fields": fields},
        )

    def _ended(self, status: int, code: str, times: Timeline) -> Ended:
        return Ended(
            scope=self._scope,
            begun=self._begun,
            job_id=self._job_id,
            status=status,
            code=code,
            passes=times.passes,
            model=self._services.served_model_name,
            usage=self._usage,
        )

    async def _fail(self, error: ServeError) -> None:
        self._services.metrics.count_error(error)
        if self._stream.ended:
            return
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await self._tell_error(error)

    async def _tell_error(self, error: ServeError) -> None:
        if error.param is not None:
            error.rename(self._language.blame(error.param))
        await error_response(error, self._scope)(self._scope, self._receive, self._send)

    async def _run_until_gone(self) -> None:
        with ExitStack() as cleanup, anyio.CancelScope() as gone:
            permit = self._services.admission.admit(account_of(self._scope))
            cleanup.callback(permit.release)
            self._services.running.add(gone)
            cleanup.callback(self._services.running.discard, gone)
            if self._services.draining:
                raise NotReady("the server is shutting down")
            body = await self._read_body(permit)
            if body is None:
                return
            cleanup.callback(asyncio.create_task(self._watch(gone)).cancel)
            permit.look_at(body)
            asked = await self._parse(body)
            del body
            permit.expect(*_weight(asked))
            permit.keep(sum(map(_inline_bytes, asked.prompts)))
            await self._answer(asked, permit, cleanup)
        if self._services.is_cut and not self._answered:
            raise NotReady("the server is shutting down")

    async def _read_body(self, permit: Permit) -> bytes | None:
        """The whole body, or nothing when the client left."""
        seconds = self._services.settings.server.body_seconds
        try:
            with anyio.fail_after(seconds):
                return await self._collect_body(permit)
        except ClientDisconnect:
            return None
        except TimeoutError as error:
            raise BodyTimeout(f"the request body did not arrive within {seconds:g} s") from error

    async def _collect_body(self, permit: Permit) -> bytes:
        limit = self._services.settings.server.max_body_bytes
        chunks: list[bytes] = []
        num_bytes = 0
        async for chunk in Request(self._scope, self._receive).stream():
            num_bytes += len(chunk)
            if num_bytes > limit:
                raise BodyTooLarge(f"the request body is larger than {limit} bytes")
            permit.hold(len(chunk))
            chunks.append(chunk)
        return b"".join(chunks)

    async def _watch(self, gone: anyio.CancelScope) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        gone.cancel()

    async def _parse(self, body: bytes) -> Asked:
        with self._services.metrics.stage("parse"):
            if len(body) <= _INLINE_BODY_BYTES:
                asked = self._language.read(body)
            else:
                # Few at once: each takes several times the memory of its body.
                pool = self._services.decode_pool
                asked = await pool.run(self._job_id, self._language.read, body)
        if asked.ignored:
            named = name_ignored(asked.ignored)
            log.info("request %s: ignoring unknown fields %s", self._request_id, named)
            self._headers[IGNORED_HEADER] = named
        return asked

    @abstractmethod
    async def _answer(self, asked: Asked, permit: Permit, cleanup: ExitStack) -> None:
        """Do what the request asks for and tell it; `cleanup` gives everything back."""

    async def _tell_body(self, body: dict[str, Any]) -> None:
        response = json_response(body)
        response.headers.update(self._headers)
        await response(self._scope, self._receive, self._send)
        self._answered = True


def _forget_the_way(error: BaseException) -> None:
    """Drop the frames that an error and those before it came through.

    They hold the request, and some hold the error: what a refused request held would stay until
    the collector of cycles comes by, which large bodies hardly hasten, or until a thread that
    failed gets other work.
    """
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__context__


def _weight(asked: Asked) -> tuple[int, int]:
    """How many answers a body asks for, and how many images it shows."""
    num_choices = sum(prompt.num_choices for prompt in asked.prompts)
    return max(1, num_choices), sum(len(prompt.images) for prompt in asked.prompts)


def _inline_bytes(prompt: Prompt) -> int:
    """Bytes of images that came with the request."""
    return sum(len(image.source) for image in prompt.images if isinstance(image.source, bytes))
