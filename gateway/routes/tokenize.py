"""The routes /tokenize and /detokenize: what a prompt counts, and what tokens say.

A conversation takes the same way here as in chat, up to its token ids: so the count is the one
that chat tells, and no worker is asked and no pixel decoded for it.
"""

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import anyio
import msgspec
import numpy as np
from starlette.types import Receive, Scope, Send

from gateway.edge.admit import Permit
from gateway.errors import BadRequest, DeadlinePassed
from gateway.exchange import Exchange
from gateway.journey import Journey
from gateway.prompts.prompt import Prompt, Raw, RawText, RawTokens
from gateway.prompts.raw import TokenIds, check_tokens, make_raw_prompt
from gateway.prompts.sampling import UNCAPPED_TOKENS
from gateway.schemas.edge import Edge
from gateway.schemas.sampling_schema import SamplingFields
from gateway.schemas.schema import check_request, load_object, validate
from gateway.talk import Asked, Desk, check_model

# A prompt may be counted that does not fit; the length of the context bounds the work.
_CONTEXTS_COUNTED = 4
_NO_CONVERSATION = [{"role": "user", "content": ""}]


class CountFields(Edge):
    """What /tokenize takes besides a conversation's own fields."""

    model: str | None = None
    prompt: str | None = None
    add_special_tokens: bool = True
    return_token_strs: bool = False


class TokenFields(Edge):
    """What /detokenize takes."""

    model: str | None = None
    tokens: TokenIds


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """What is not null."""
    return {name: value for name, value in fields.items() if value is not None}


def _asked(desk: Desk, raw: Raw, model: str, unknown: Mapping[str, Any]) -> Asked:
    check_model(model, desk.services.served_model_name)
    return Asked((make_raw_prompt(raw, SamplingFields(), desk),), False, tuple(unknown))


class CountLanguage:
    """Bodies of POST /tokenize: those of chat, or a `prompt` in place of `messages`."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.tells_strings = False

    def read(self, body: bytes) -> Asked:
        """Check a body; see `gateway.talk.Language`."""
        fields = load_object(body)
        own = {name: fields.pop(name, None) for name in CountFields.model_fields}
        asked = validate(CountFields, _present(own))
        self.tells_strings = asked.return_token_strs
        if (asked.prompt is None) == (fields.get("messages") is None):
            raise BadRequest("send either messages or prompt", param="messages")
        model = asked.model or self._desk.services.served_model_name
        if asked.prompt is not None:
            # What chat would say of its fields holds here too, though a prompt uses none of them.
            check_request(fields | {"model": model, "messages": _NO_CONVERSATION})
            raw = RawText(asked.prompt, asked.add_special_tokens)
            return _asked(self._desk, raw, model, _present(fields))
        request = check_request(fields | {"model": model})
        return Asked((self._desk.prompt(request),), False, request.unknown_fields)

    def blame(self, param: str) -> str:
        """Fields of a conversation are called as in chat."""
        return param


class SpellLanguage:
    """Bodies of POST /detokenize."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def read(self, body: bytes) -> Asked:
        """Check a body; see `gateway.talk.Language`."""
        asked = validate(TokenFields, _present(load_object(body)))
        check_tokens(asked.tokens, "tokens", self._desk.services.checkpoint.tokenizer)
        model = asked.model or self._desk.services.served_model_name
        return _asked(self._desk, RawTokens(asked.tokens), model, asked.model_extra or {})

    def blame(self, param: str) -> str:
        """Fields have their own names here."""
        return param


class Counting(Exchange):
    """Tells what a prompt counts. Owned by the request's task."""

    def __init__(
        self, desk: Desk, language: CountLanguage, scope: Scope, receive: Receive, send: Send
    ) -> None:
        super().__init__(desk, language, scope, receive, send)
        self._count_language = language

    async def _answer(self, asked: Asked, permit: Permit, cleanup: ExitStack) -> None:
        (prompt,) = asked.prompts
        limit = self._services.stated_context_tokens()
        ids = await self._count(prompt, permit, limit)
        tokenizer = self._services.checkpoint.tokenizer
        strings = (
            list(map(tokenizer.id_to_token, ids)) if self._count_language.tells_strings else None
        )
        body = {"count": len(ids), "max_model_len": limit, "tokens": ids, "token_strs": strings}
        await self._tell_body(body)

    async def _count(self, prompt: Prompt, permit: Permit, limit: int) -> list[int]:
        # Whatever the answer may have, nothing is answered.
        sampling = msgspec.structs.replace(prompt.sampling, max_tokens=UNCAPPED_TOKENS)
        prompt = replace(prompt, sampling=sampling)
        journey = Journey(self._services, prompt, permit, self._arrival)
        try:
            with anyio.fail_after(prompt.deadline - time.monotonic()):
                tokens = await journey.count(_CONTEXTS_COUNTED * limit)
        except TimeoutError as error:
            raise DeadlinePassed("the request's time limit ran out") from error
        ids: list[int] = np.frombuffer(tokens.token_ids, "<i4").tolist()
        return ids


class Spelling(Exchange):
    """Tells what tokens say. Owned by the request's task."""

    async def _answer(self, asked: Asked, permit: Permit, cleanup: ExitStack) -> None:
        raw = asked.prompts[0].raw
        assert isinstance(raw, RawTokens)
        tokenizer = self._services.checkpoint.tokenizer
        text = tokenizer.decode(raw.token_ids, skip_special_tokens=False)
        await self._tell_body({"prompt": text})
