"""One chat request and its answer: exactly one status, one end of stream, everything given back."""

import asyncio
import logging
import secrets
import time
from contextlib import ExitStack
from functools import partial

import anyio
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from gateway import sse
from gateway.admit import Permit
from gateway.answer import Answers, Piece
from gateway.errors import (
    BodyTimeout,
    BodyTooLarge,
    DeadlinePassed,
    ImageRejected,
    NotReady,
    ServeError,
    UnknownModel,
    error_body,
)
from gateway.journey import Journey
from gateway.prompt import Prompt, make_prompt
from gateway.request_id import request_id_of
from gateway.responses import EventStream, error_response, json_response
from gateway.retry import Tries
from gateway.schema import parse_request
from gateway.services import Services
from gateway.token_log import Entry

log = logging.getLogger(__name__)

# A client that left before its answer; nobody receives it, metrics and logs show it.
_CLIENT_GONE = 499
# Bodies above this size are parsed in a thread, so that base64 does not hold the event loop.
_INLINE_BODY_BYTES = 64 * 1024
# Time that a client who does not read gets to take in an error.
_LAST_WORDS_SECONDS = 5.0


class Exchange:
    """Owned by the request's task."""

    def __init__(self, services: Services, scope: Scope, receive: Receive, send: Send) -> None:
        self._services = services
        self._scope, self._receive, self._send = scope, receive, send
        self._stream = EventStream(send)
        self._request_id = request_id_of(scope)
        self._job_id = secrets.token_hex(12)
        self._begun = time.monotonic()
        self._answered = False

    async def run(self) -> None:
        """Answer the request, or say why not."""
        status, code = 200, ""
        with self._services.metrics.requests_running.track_inprogress():
            try:
                await self._run_until_gone()
                if not self._answered:
                    status, code = _CLIENT_GONE, "client_gone"
            except ServeError as error:
                status, code = error.status, error.code
                await self._fail(error)
            except Exception:
                log.exception("request %s failed", self._request_id)
                fault = ServeError("the gateway failed on this request")
                status, code = fault.status, fault.code
                await self._fail(fault)
        self._observe(status, code)

    def _observe(self, status: int, code: str) -> None:
        seconds = time.monotonic() - self._begun
        self._services.metrics.requests.labels(str(status), code).inc()
        self._services.metrics.request_seconds.observe(seconds)
        log.info(
            "request %s, job %s: %d %s after %.3f s",
            self._request_id,
            self._job_id,
            status,
            code or "ok",
            seconds,
        )

    async def _fail(self, error: ServeError) -> None:
        if isinstance(error, ImageRejected):
            self._services.metrics.images_rejected.labels(error.stage, error.code).inc()
        if self._stream.ended:
            return
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await self._tell_error(error)

    async def _tell_error(self, error: ServeError) -> None:
        if self._stream.started:
            await self._stream.end(sse.error_frame(error_body(error, self._request_id)) + sse.DONE)
        else:
            await error_response(error, self._scope)(self._scope, self._receive, self._send)

    async def _run_until_gone(self) -> None:
        with ExitStack() as cleanup, anyio.CancelScope() as gone:
            permit = self._services.admission.admit()
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
            prompt = await self._parse(body)
            del body
            permit.expect(prompt.num_choices, len(prompt.images))
            inline = [image.source for image in prompt.images if isinstance(image.source, bytes)]
            permit.keep(sum(len(source) for source in inline))
            await self._answer(Journey(self._services, prompt, permit), prompt, cleanup)
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

    async def _parse(self, body: bytes) -> Prompt:
        with self._services.metrics.stage("parse"):
            if len(body) <= _INLINE_BODY_BYTES:
                return self._make_prompt(body)
            # Few at once: each takes several times the memory of its body.
            return await self._services.decode_pool.run(self._job_id, self._make_prompt, body)

    def _make_prompt(self, body: bytes) -> Prompt:
        services = self._services
        request = parse_request(body)
        if request.unknown_fields:
            names = ", ".join(request.unknown_fields)
            log.info("request %s: ignoring unknown fields %.200s", self._request_id, names)
        if request.model != services.served_model_name:
            name = request.model[:80] if request.model[:80].isprintable() else "asked for"
            raise UnknownModel(
                f"the model {name!r} is not served here; {services.served_model_name!r} is"
            )
        return make_prompt(
            request,
            request_id=self._job_id,
            checkpoint=services.checkpoint,
            limits=services.settings.images,
            request_seconds=services.settings.server.request_seconds,
            now=self._begun,
        )

    async def _answer(self, journey: Journey, prompt: Prompt, cleanup: ExitStack) -> None:
        try:
            with anyio.fail_after(prompt.deadline - time.monotonic()):
                begin = partial(self._begin, journey, prompt)
                tries = Tries(self._services, self._request_id)
                answers, pieces = await tries.run(begin, cleanup)
                tell = self._tell_streaming if prompt.streamed else self._tell_whole
                await tell(prompt, answers, pieces)
        except TimeoutError as error:
            raise DeadlinePassed("the request's time limit ran out") from error

    async def _begin(
        self, journey: Journey, prompt: Prompt, cleanup: ExitStack
    ) -> tuple[Answers, list[Piece]]:
        """What can be done again: all up to the first piece, or to the last if it goes in one."""
        answers = await journey.start(cleanup)
        pieces = await answers.next()
        self._services.metrics.first_token_seconds.observe(time.monotonic() - self._begun)
        while answers.usage is None and not prompt.streamed:
            pieces += await answers.next()
        return answers, pieces

    async def _tell_whole(self, prompt: Prompt, answers: Answers, told: list[Piece]) -> None:
        assert answers.usage is not None, "not all has come"
        frames = sse.Frames(prompt.request_id, self._services.served_model_name)
        choices = [_join(told, index) for index in range(prompt.num_choices)]
        body = frames.completion(choices, answers.usage)
        await json_response(body)(self._scope, self._receive, self._send)
        self._answered = True

    async def _tell_streaming(self, prompt: Prompt, answers: Answers, pieces: list[Piece]) -> None:
        frames = sse.Frames(prompt.request_id, self._services.served_model_name)
        await self._stream.start()
        head = b"".join(map(frames.role, range(prompt.num_choices)))
        await self._stream.write(head + _write(frames, pieces))
        while answers.usage is None:
            written = _write(frames, await answers.next())
            if written:
                await self._stream.write(written)
        last = frames.usage(answers.usage) if prompt.include_usage else b""
        await self._stream.end(last + sse.DONE)
        self._answered = True


def _write(frames: sse.Frames, pieces: list[Piece]) -> bytes:
    written = b""
    for piece in pieces:
        written += frames.text(piece.choice, piece.text, piece.logprobs)
        if piece.reason is not None:
            written += frames.finish(piece.choice, piece.reason)
    return written


def _join(told: list[Piece], index: int) -> sse.Choice:
    """All pieces of one choice as one."""
    pieces = [piece for piece in told if piece.choice == index]
    logprobs: list[Entry] | None = None
    if pieces[0].logprobs is not None:
        logprobs = [entry for piece in pieces for entry in piece.logprobs or ()]
    return sse.Choice("".join(piece.text for piece in pieces), pieces[-1].reason or "", logprobs)
