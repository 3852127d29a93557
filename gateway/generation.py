"""A checked request in, its answer out: whole, or streamed as it comes."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import anyio
from starlette.types import Receive, Scope, Send

from gateway.answers.answer import Answers, Piece
from gateway.edge.admit import Permit
from gateway.errors import DeadlinePassed, ServeError, WorkerError, error_body
from gateway.exchange import Exchange
from gateway.flow import together
from gateway.jobs.retry import Tries
from gateway.journey import Journey
from gateway.talk import Asked, Desk, Talk


class Generation(Exchange):
    """Answers a request by generating. Owned by the request's task."""

    def __init__(self, desk: Desk, talk: Talk, scope: Scope, receive: Receive, send: Send) -> None:
        super().__init__(desk, talk, scope, receive, send)
        self._talk = talk

    async def _tell_error(self, error: ServeError) -> None:
        if not self._stream.started:
            await super()._tell_error(error)
            return
        if error.param is not None:
            error.rename(self._talk.blame(error.param))
        await self._stream.end(self._talk.failure(error_body(error, self._request_id)))

    async def _answer(self, asked: Asked, permit: Permit, cleanup: ExitStack) -> None:
        try:
            with anyio.fail_after(asked.prompts[0].deadline - time.monotonic()):
                journeys = [
                    Journey(self._services, prompt, permit, self._arrival)
                    for prompt in asked.prompts
                ]
                begin = partial(self._begin, journeys, asked, permit)
                answers, pieces = await Tries(self._services, self._request_id).run(begin, cleanup)
                tell = self._tell_streaming if asked.streamed else self._tell_whole
                await tell(answers, pieces)
        except TimeoutError as error:
            raise DeadlinePassed("the request's time limit ran out") from error

    async def _begin(
        self, journeys: Sequence[Journey], asked: Asked, permit: Permit, cleanup: ExitStack
    ) -> tuple[Answers, list[Piece]]:
        """What can be done again: all up to the first piece, or to the last if it goes in one."""
        wake = asyncio.Event()
        num_choices = asked.prompts[0].num_choices
        started = await together(
            journey.start(cleanup, wake, index * num_choices)
            for index, journey in enumerate(journeys)
        )
        answers = Answers(started, wake)
        cleanup.enter_context(self._counted(answers, permit))
        pieces = await answers.next()
        self._services.metrics.first_token_seconds.observe(time.monotonic() - self._begun)
        while answers.usage is None and not asked.streamed:
            pieces += await answers.next()
        return answers, pieces

    @contextmanager
    def _counted(self, answers: Answers, permit: Permit) -> Iterator[None]:
        """Count what is used from when engines have the prompts, however it ends.

        Who leaves early pays for what was done; only work that was lost by a fault of ours before
        anything was told is not counted. Callers cannot bring that about to work for nothing: what
        kills workers is fenced.
        """
        is_lost = False
        try:
            yield
        except WorkerError:
            is_lost = not self._stream.started
            raise
        finally:
            if not is_lost:
                self._count(answers, permit)

    def _count(self, answers: Answers, permit: Permit) -> None:
        usage = self._usage = answers.usage_so_far()
        self._services.metrics.count_usage(usage)
        permit.account.charge_tokens(usage.prompt_tokens + usage.completion_tokens)

    async def _tell_whole(self, answers: Answers, told: list[Piece]) -> None:
        assert answers.usage is not None, "not all has come"
        await self._tell_body(self._talk.whole(told, answers.usage))

    async def _tell_streaming(self, answers: Answers, pieces: list[Piece]) -> None:
        await self._stream.start(self._headers)
        await self._stream.write(self._talk.opening() + self._talk.pieces(pieces))
        while answers.usage is None:
            written = self._talk.pieces(await answers.next())
            if written:
                await self._stream.write(written)
        await self._stream.end(self._talk.closing(answers.usage))
        self._answered = True
