"""Token events of a request's tickets in, `Piece`s of text with usage out."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gateway.dispatch import Batch, Ticket, to_error
from gateway.errors import BadRequest, ServeError
from gateway.prompt import Prompt
from gateway.services import Services
from gateway.sse import Usage
from gateway.tensors import INVALID_TENSORS
from gateway.text_stream import TextStream
from gateway.token_log import Entry, TokenLog
from workers.messages import Failed

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The next text of one choice, and why it ended if that is reached."""

    choice: int
    text: str
    logprobs: list[Entry] | None  # None unless they were asked for
    reason: FinishReason | None


class Answer:
    """Reads the ticket of one choice to its end. Owned by the request's task."""

    def __init__(self, services: Services, prompt: Prompt, ticket: Ticket, choice: int) -> None:
        self._services = services
        self._ticket = ticket
        self._choice = choice
        speller, sampling = services.checkpoint.speller, prompt.sampling
        self._text = TextStream(speller, prompt.stop, sampling.min_tokens)
        self._log = TokenLog(speller) if sampling.logprobs else None
        self._has_tensors = any(image.form == "tensors" for image in prompt.images)
        self._last_at: float | None = None
        self.num_tokens = 0
        self.ended = False

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that were not computed, once the first token has come."""
        return self._ticket.num_cached_tokens

    @property
    def has_news(self) -> bool:
        """Whether there is a piece to take."""
        return not self.ended and self._ticket.has_news

    def take(self) -> Piece:
        """The next piece; its text may be empty while a character is incomplete.

        Raises:
            ServeError: the job failed.
        """
        batch = self._ticket.take()
        if isinstance(batch.end, Failed):
            raise self._error(batch.end)
        self._observe(batch)
        text = self._read(batch)
        reason: FinishReason | None = None
        if self._text.stopped:
            self._services.dispatcher.close(self._ticket)
            reason = "stop"
        elif batch.end is not None:
            text += self._text.finish()
            reason = "length" if batch.end.reason == "length" else "stop"
            self.num_tokens = batch.end.num_completion_tokens
        self.ended = reason is not None
        entries = None if self._log is None else self._log.take(self._text.num_given)
        return Piece(self._choice, text, entries, reason)

    def _read(self, batch: Batch) -> str:
        """The text of the tokens up to the one that completes a stop string."""
        texts = []
        for index, token_id in enumerate(batch.token_ids):
            if self._log is not None:
                self._log.add(token_id, batch.likelihoods[index], self._text.num_characters)
            texts.append(self._text.push((token_id,)))
            self.num_tokens += 1
            if self._text.stopped:
                break
        return "".join(texts)

    def _error(self, failed: Failed) -> ServeError:
        if failed.kind == "not_finite" and self._has_tensors:
            return BadRequest(
                "the numbers of the images' tensors are too large for the model",
                param="messages",
                code=INVALID_TENSORS,
            )
        if failed.kind == "lost":
            self._services.dispatcher.check_fence(self._ticket.key)
        return to_error(failed)

    def _observe(self, batch: Batch) -> None:
        if not batch.token_ids:
            return
        now = time.monotonic()
        if self._last_at is not None:
            self._services.metrics.inter_token_seconds.observe(now - self._last_at)
        self._last_at = now


class Answers:
    """Reads all choices of one request at once. Owned by the request's task."""

    def __init__(
        self,
        services: Services,
        answers: Sequence[Answer],
        wake: asyncio.Event,
        num_prompt_tokens: int,
        num_image_tokens: int,
    ) -> None:
        """`wake` is set whenever one of the answers has news."""
        self._services = services
        self._answers = answers
        self._wake = wake
        self._num_prompt_tokens = num_prompt_tokens
        self._num_image_tokens = num_image_tokens
        self.usage: Usage | None = None  # once all choices have ended

    async def next(self) -> list[Piece]:
        """Wait for news; a piece of each choice that has some.

        Raises:
            ServeError: the job of a choice failed.
        """
        pieces: list[Piece] = []
        while not pieces:
            await self._wake.wait()
            self._wake.clear()
            pieces = [answer.take() for answer in self._answers if answer.has_news]
        if all(answer.ended for answer in self._answers):
            self.usage = self._sum_up()
        return pieces

    def _sum_up(self) -> Usage:
        """The prompt counts once, whatever the number of choices."""
        usage = Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=sum(answer.num_tokens for answer in self._answers),
            image_tokens=self._num_image_tokens,
            cached_tokens=self._answers[0].num_cached_tokens,
        )
        metrics = self._services.metrics
        metrics.prompt_tokens.inc(usage.prompt_tokens)
        metrics.image_tokens.inc(usage.image_tokens)
        metrics.cached_tokens.inc(usage.cached_tokens)
        metrics.completion_tokens.inc(usage.completion_tokens)
        return usage
