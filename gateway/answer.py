"""Token events of one ticket in, `Piece`s of text with usage out."""

import time
from dataclasses import dataclass
from typing import Literal

from gateway.dispatch import Ticket, to_error
from gateway.errors import BadRequest, ServeError
from gateway.prompt import Prompt
from gateway.services import Services
from gateway.sse import Usage
from gateway.tensors import INVALID_TENSORS
from gateway.text import TextStream
from workers.messages import Failed, Finished

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class End:
    """Why an answer ended, and what it cost."""

    reason: FinishReason
    usage: Usage


@dataclass(frozen=True, slots=True)
class Piece:
    """The next text of an answer, and its end if that is reached."""

    text: str
    end: End | None


class Answer:
    """Reads one ticket to its end. Owned by the request's task."""

    def __init__(
        self,
        services: Services,
        prompt: Prompt,
        ticket: Ticket,
        num_prompt_tokens: int,
        num_image_tokens: int,
    ) -> None:
        self._services = services
        self._ticket = ticket
        self._text = TextStream(services.checkpoint.tokenizer, prompt.stop)
        self._has_tensors = any(image.form == "tensors" for image in prompt.images)
        self._num_prompt_tokens = num_prompt_tokens
        self._num_image_tokens = num_image_tokens
        self._num_tokens = 0
        self._last_at: float | None = None

    async def next(self) -> Piece:
        """Wait for the next piece; its text may be empty while a character is incomplete.

        Raises:
            ServeError: the job failed.
        """
        batch = await self._ticket.next()
        if isinstance(batch.end, Failed):
            raise self._error(batch.end)
        self._observe(len(batch.token_ids))
        text = self._text.push(batch.token_ids)
        if self._text.stopped:
            self._services.dispatcher.close(self._ticket)
            return Piece(text, self._end("stop", self._num_tokens))
        if batch.end is None:
            return Piece(text, None)
        return self._last_piece(text, batch.end)

    def _error(self, failed: Failed) -> ServeError:
        if failed.kind == "not_finite" and self._has_tensors:
            return BadRequest(
                "the numbers of the images' tensors are too large for the model",
                param="messages",
                code=INVALID_TENSORS,
            )
        return to_error(failed)

    def _last_piece(self, text: str, end: Finished) -> Piece:
        text += self._text.finish()
        reason: FinishReason = "length" if end.reason == "length" else "stop"
        return Piece(text, self._end(reason, end.num_completion_tokens))

    def _end(self, reason: FinishReason, num_completion_tokens: int) -> End:
        metrics = self._services.metrics
        metrics.prompt_tokens.inc(self._num_prompt_tokens)
        metrics.image_tokens.inc(self._num_image_tokens)
        metrics.cached_tokens.inc(self._ticket.num_cached_tokens)
        metrics.completion_tokens.inc(num_completion_tokens)
        usage = Usage(
            prompt_tokens=self._num_prompt_tokens,
            completion_tokens=num_completion_tokens,
            image_tokens=self._num_image_tokens,
            cached_tokens=self._ticket.num_cached_tokens,
        )
        return End(reason, usage)

    def _observe(self, num_tokens: int) -> None:
        if num_tokens == 0:
            return
        now = time.monotonic()
        if self._last_at is not None:
            self._services.metrics.inter_token_seconds.observe(now - self._last_at)
        self._last_at = now
        self._num_tokens += num_tokens
