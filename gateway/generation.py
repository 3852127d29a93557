"""A checked request in, its answer out: whole, or streamed as it comes."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import ExitStack

import anyio
from starlette.types import Receive, Scope, Send

from gateway.admit import Permit
from gateway.answer import Answers, Piece
from gateway.errors import DeadlinePassed, ServeError, error_body
from gateway.exchange import Exchange
from gateway.flow import together
from gateway.journey import Journey
from gateway.prompt import Prompt
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
                answers = await self._start(asked.prompts, permit, cleanup)
                first = await answers.next()
                self._services.metrics.first_token_seconds.observe(time.monotonic() - self._begun)
                tell = self._tell_streaming if asked.streamed else self._tell_whole
                await tell(answers, first)
        except TimeoutError as error:
            raise DeadlinePassed("the request's time limit ran out") from error

    async def _start(
        self, prompts: Sequence[Prompt], permit: Permit, cleanup: ExitStack
    ) -> Answers:
        wake = asyncio.Event()
        num_choices = prompts[0].num_choices
        started = await together(
            Journey(self._services, prompt, permit, self._arrival).start(
                cleanup, wake, index * num_choices
            )
            for index, prompt in enumerate(prompts)
        )
        answers = Answers(started, wake)
        cleanup.callback(self._count, answers, permit)
        return answers

    def _count(self, answers: Answers, permit: Permit) -> None:
        """Put what was used on the account, also of an answer that nobody heard to its end."""
        usage = answers.usage_so_far()
        self._services.metrics.count_usage(usage)
        permit.account.charge_tokens(usage.prompt_tokens + usage.completion_tokens)

    async def _tell_whole(self, answers: Answers, pieces: list[Piece]) -> None:
        told = list(pieces)
        while answers.usage is None:
            told += await answers.next()
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
