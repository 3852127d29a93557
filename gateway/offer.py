"""A prompt with its images in, tickets of the engine that answers it out.

An engine may know an image whose embeddings are gone, for its KV cache holds more. Such an image
is offered without embeddings. Those that the engine names as missing are encoded after all, and
the prompt is offered again.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile

from gateway.encoding.embeddings import Entry
from gateway.encoding.flight import Picture
from gateway.encoding.lease import Share
from gateway.encoding.place import choose_engine
from gateway.encoding.traces import Trace
from gateway.jobs.ticket import Ticket
from gateway.prompts.prompt import Prompt
from gateway.prompts.sampling import for_choice
from gateway.prompts.text import PromptTokens
from gateway.services import Services
from workers.messages import GenerateJob, Span

Hopes = Mapping[bytes, Trace]  # images to offer without embeddings, by source digest


class Offer:
    """Hands one request to an engine. Owned by the request's task."""

    def __init__(
        self,
        services: Services,
        prompt: Prompt,
        pictures: Sequence[Picture],
        tokens: PromptTokens,
        wake: asyncio.Event,
    ) -> None:
        """`pictures` are the prompt's, in order; some may have come by their name alone.

        `wake` is set whenever one of the request's tickets has news.
        """
        self._services = services
        self._prompt = prompt
        self._tokens = tokens
        shown = sorted(zip(tokens.image_starts, pictures, strict=True), key=lambda pair: pair[0])
        self._shown = dict(shown)  # pictures by start, ascending
        self._wake = wake

    async def make(self, cleanup: ExitStack) -> list[Ticket]:
        """Have all choices taken by engines; `cleanup` ends them.

        Each round leaves fewer images to hope for, so there are few.

        Raises:
            ServeError: an image could not be had, or there is no engine to be had.
        """
        tickets: dict[int, Ticket] = {}
        hopes, choices = self._hopes(), list(range(self._prompt.num_choices))
        with ExitStack() as desk:
            while choices:
                entries, share = await self._obtain(hopes, desk)
                spans = self._spans(entries, hopes)
                engine = self._choose_engine()
                for choice in choices:
                    job = self._job(choice, spans)
                    ticket = self._services.dispatcher.generate(engine, job, share, self._wake)
                    cleanup.callback(self._services.dispatcher.close, ticket)
                    tickets[choice] = ticket
                self._leave_traces(spans, engine)
                if hopes:
                    await self._until_decided(tickets.values())
                choices = [choice for choice in choices if tickets[choice].missing]
                named = {start for choice in choices for start in tickets[choice].missing or ()}
                missing = {self._shown[start].task.digest for start in named}
                hopes = {key: trace for key, trace in hopes.items() if key not in missing}
        self._services.metrics.embedding_lookups.labels("covered").inc(len(hopes))
        return [tickets[choice] for choice in sorted(tickets)]

    def _beginning(self) -> list[bytes]:
        """Images up to the first that no engine was shown: what comes behind that one is new."""
        digests = (picture.task.digest for picture in self._shown.values())
        find = self._services.traces.find
        return list(takewhile(lambda digest: find(digest) is not None, digests))

    def _hopes(self) -> Hopes:
        beginning, digests = self._beginning(), [each.task.digest for each in self._shown.values()]
        hopes: dict[bytes, Trace] = {}
        for digest in set(beginning) - set(digests[len(beginning) :]):
            trace = self._services.traces.find(digest)
            if trace is not None and not self._services.encoder.has(digest):
                hopes[digest] = trace
        return hopes

    def _choose_engine(self) -> int:
        beginning, traces = self._beginning(), self._services.traces
        trace = traces.find(beginning[-1]) if beginning else None
        engines = self._services.dispatcher.engines()
        favourite = None if trace is None else trace.engine
        engine = choose_engine(engines, favourite)
        name = next(each.name for each in engines if each.index == engine)
        reason = "known" if engine == favourite else "load"
        self._services.metrics.engine_choices.labels(name, reason).inc()
        return engine

    async def _obtain(self, hopes: Hopes, desk: ExitStack) -> tuple[dict[bytes, Entry], Share]:
        pictures = [each for each in self._shown.values() if each.task.digest not in hopes]
        encoder, request_id = self._services.encoder, self._prompt.request_id
        entries, share = await encoder.obtain(pictures, request_id, desk)
        return {entry.digest: entry for entry in entries}, share

    def _spans(self, entries: Mapping[bytes, Entry], hopes: Hopes) -> tuple[Span, ...]:
        spans = []
        for start, picture in self._shown.items():
            digest, plan = picture.task.digest, picture.task.plan
            known = hopes.get(digest) or entries[digest]
            spans.append(
                Span(
                    start=start,
                    num_tokens=plan.num_tokens,
                    grid=plan.grid,
                    embeddings=known.tensor if isinstance(known, Entry) else None,
                    identity=known.identity,
                )
            )
        return tuple(spans)

    def _job(self, choice: int, spans: tuple[Span, ...]) -> GenerateJob:
        prompt, tokens = self._prompt, self._tokens
        return GenerateJob(
            job_id=f"{prompt.request_id}.{choice}" if choice else prompt.request_id,
            salt=prompt.tenant,
            token_ids=tokens.token_ids,
            spans=spans,
            sampling=for_choice(tokens.sampling, choice),
            seconds_left=prompt.deadline - time.monotonic(),
        )

    def _leave_traces(self, spans: Iterable[Span], engine: int) -> None:
        for span in spans:
            digest = self._shown[span.start].task.digest
            self._services.traces.learn(digest, Trace(span.identity, engine))

    async def _until_decided(self, tickets: Iterable[Ticket]) -> None:
        while not all(ticket.is_decided for ticket in tickets):
            await self._wake.wait()
            self._wake.clear()
        self._wake.set()  # what else has come is for whoever reads the answers
