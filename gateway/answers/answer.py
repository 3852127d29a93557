"""Token events of a request's tickets in, `Piece`s of the answer with usage out."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.answers.deltas import CallBook, Delta, Said, join
from gateway.answers.old_log import OldLog
from gateway.answers.prompt_log import PromptLog
from gateway.answers.sse import Usage
from gateway.answers.text_stream import TextStream
from gateway.answers.token_log import Entry, TokenLog
from gateway.errors import BadRequest, ServeError
from gateway.images.tensors import INVALID_TENSORS
from gateway.jobs.dispatch import to_error
from gateway.jobs.ticket import Batch, Ticket
from gateway.prompts.prompt import Prompt
from gateway.services import Services
from workers.families.answers import Event, Words
from workers.messages import Failed, Finished

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The next of one choice, and why it ended if that is reached."""

    choice: int
    deltas: Sequence[Delta]
    logprobs: list[Entry] | None  # None unless they were asked for
    reason: FinishReason | None
    prompt_log: OldLog | None = None  # in the first piece of a prompt's first choice, if asked for

    @property
    def text(self) -> str:
        """What is said to the caller."""
        return "".join(delta.text for delta in self.deltas if isinstance(delta, Said))


class Answer:
    """Reads the ticket of one choice to its end. Owned by the request's task."""

    def __init__(
        self,
        services: Services,
        prompt: Prompt,
        ticket: Ticket,
        choice: int,
        in_thought: bool = False,
        prompt_log: PromptLog | None = None,
    ) -> None:
        """Read one answer.

        Args:
            services: what the gateway has.
            prompt: what is answered.
            ticket: what comes of it.
            choice: the number of the answer among all of the request.
            in_thought: whether the prompt leaves a thought open.
            prompt_log: what to tell of the prompt with the first piece.
        """
        self._services = services
        self._ticket = ticket
        self._choice = choice
        speller, sampling = services.checkpoint.speller, prompt.sampling
        self._text = TextStream(speller, prompt.stop, sampling.min_tokens)
        if prompt.raw is None:  # what goes on with a raw prompt is told as it is
            form = services.checkpoint.answer_form
            self._text.read_as(form, in_thought, prompt.tool_use.functions)
        self._calls = CallBook(prompt.tool_use.max_calls)
        # Beside a prompt's own tokens, all of the answer's are told, so that they can be counted.
        tells_special = sampling.prompt_logprobs
        self._log = TokenLog(speller, tells_special=tells_special) if sampling.logprobs else None
        self._prompt_log = prompt_log
        self._has_tensors = any(image.form == "tensors" for image in prompt.images)
        self._last_at: float | None = None
        self.num_tokens = 0
        self.ended = False

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed, once the first token has come."""
        return self._ticket.num_cached_tokens

    @property
    def num_thought_tokens(self) -> int:
        """Tokens of the answer up to the end of its thought."""
        return self._text.num_thought_tokens

    @property
    def has_news(self) -> bool:
        """Whether there is a piece to take."""
        return not self.ended and self._ticket.has_news

    @property
    def owes_prompt(self) -> bool:
        """Whether it is still to come what the first piece tells of the prompt."""
        return self._prompt_log is not None and not self.has_news

    def read_scores(self) -> None:
        """Take what has come of the likelihoods of the prompt."""
        if self._prompt_log is not None:
            self._prompt_log.add(self._ticket.take_scores())

    def take(self) -> Piece:
        """The next piece; it may be empty while something is incomplete.

        Raises:
            ServeError: the job failed.
        """
        batch = self._ticket.take()
        if isinstance(batch.end, Failed):
            raise self._error(batch.end)
        self._observe(batch)
        events, deltas = self._read(batch)
        reason: FinishReason | None = None
        if self._is_over:
            self._services.dispatcher.close(self._ticket)
            reason = self._reason("stop")
        elif batch.end is not None:
            last = self._text.finish()
            events += last
            deltas += self._calls.enter(last)
            reason = self._reason("stop" if self._is_over else batch.end.reason)
            self.num_tokens = batch.end.num_completion_tokens
        if reason is not None:
            self.ended = True
            self._services.metrics.answers.labels(reason).inc()
        entries = self._entries(events, batch.end)
        told, self._prompt_log = self._prompt_log, None
        prompt_log = None if told is None else told.told
        return Piece(self._choice, join(deltas), entries, reason, prompt_log)

    def _entries(self, events: Sequence[Event], end: Finished | None) -> list[Entry] | None:
        if self._log is None:
            return None
        entries = self._log.take(_words(events))
        if end is not None and not self._is_over:
            entries += self._log.rest(end.stop)
        return entries

    @property
    def _is_over(self) -> bool:
        """Whether a stop string or the last call that is wanted is complete."""
        return self._text.stopped or self._calls.is_full

    def _reason(self, end: str) -> FinishReason:
        if end == "length":
            return "length"
        return "tool_calls" if self._calls.num_calls else "stop"

    def _read(self, batch: Batch) -> tuple[list[Event], list[Delta]]:
        """What the tokens say, up to the one that ends the answer by what it says."""
        events: list[Event] = []
        deltas: list[Delta] = []
        for index, token_id in enumerate(batch.token_ids):
            if self._log is not None:
                self._log.add(token_id, batch.likelihoods[index], self._text.num_characters)
            news = self._text.push((token_id,))
            events += news
            deltas += self._calls.enter(news)
            self.num_tokens += 1
            if self._is_over:
                break
        return events, deltas

    def _error(self, failed: Failed) -> ServeError:
        if failed.kind == "not_finite" and self._has_tensors:
            return BadRequest(
                "the numbers of the images' tensors are too large for the model",
                param="messages",
                code=INVALID_TENSORS,
            )
        if failed.kind == "lost":
            self._services.dispatcher.fence.check_prompt(self._ticket.key)
        return to_error(failed)

    def _observe(self, batch: Batch) -> None:
        if not batch.token_ids:
            return
        now = time.monotonic()
        if self._last_at is not None:
            self._services.metrics.inter_token_seconds.observe(now - self._last_at)
        self._last_at = now


@dataclass(frozen=True, slots=True)
class Started:
    """One prompt that an engine has, and the answers to it that come."""

    answers: tuple[Answer, ...]
    num_prompt_tokens: int
    num_image_tokens: int

    def with_news(self) -> list[Answer]:
        """Those that have some; none before what the first is to tell of the prompt."""
        if self.answers[0].owes_prompt:
            return []
        return [answer for answer in self.answers if answer.has_news]


class Answers:
    """Reads all choices of one request at once. Owned by the request's task."""

    def __init__(self, started: Sequence[Started], wake: asyncio.Event) -> None:
        """`wake` is set whenever one of the answers has news."""
        self._started = started
        self._answers = [answer for one in started for answer in one.answers]
        self._wake = wake
        self.usage: Usage | None = None  # once all choices have ended

    def usage_so_far(self) -> Usage:
        """What has been used until now; the prompt counts once, whatever the number of choices."""
        started = self._started
        return Usage(
            prompt_tokens=sum(one.num_prompt_tokens for one in started),
            completion_tokens=sum(answer.num_tokens for answer in self._answers),
            image_tokens=sum(one.num_image_tokens for one in started),
            cached_tokens=sum(one.answers[0].num_cached_tokens for one in started),
            thought_tokens=sum(answer.num_thought_tokens for answer in self._answers),
        )

    async def next(self) -> list[Piece]:
        """Wait for news; a piece of each choice that has some.

        Raises:
            ServeError: the job of a choice failed.
        """
        pieces: list[Piece] = []
        while not pieces:
            await self._wake.wait()
            self._wake.clear()
            for one in self._started:
                one.answers[0].read_scores()
            news = [answer for one in self._started for answer in one.with_news()]
            pieces = [answer.take() for answer in news]
        if all(answer.ended for answer in self._answers):
            self.usage = self.usage_so_far()
        return pieces


def _words(events: Sequence[Event]) -> Iterator[Words]:
    return (event for event in events if isinstance(event, Words))
