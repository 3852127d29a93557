"""Requests that are offered to an engine, which knows of images what the test lets it know."""

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

from gateway.encoding.flight import Picture
from gateway.encoding.traces import TraceBook
from gateway.jobs.ticket import Ticket
from gateway.offer import Offer
from gateway.prompts.prompt import Prompt
from gateway.prompts.text import PromptTokens
from gateway.services import Services
from tests.gateway.house import REQUEST_SECONDS, House, pictures, until
from workers.fail_kind import FailKind
from workers.messages import Failed, Finished, GenerateJob, Missing, Taken
from workers.sampling import Sampling

ENGINE = 2
SAMPLING = Sampling(temperature=0.0, top_p=1.0, top_k=0, seed=1, max_tokens=5, stop_token_ids=())


@dataclass
class Inn:
    """A house with an engine, whose answers the test gives."""

    house: House
    traces: TraceBook = field(default_factory=TraceBook)
    known: set[bytes] = field(default_factory=set)  # identities that the engine knows
    num_refused: int = 0  # jobs with images that it did not know

    @property
    def services(self) -> Services:
        parts = SimpleNamespace(
            dispatcher=self.house.dispatcher,
            encoder=self.house.encoder,
            metrics=self.house.metrics,
            traces=self.traces,
        )
        return cast("Services", parts)

    def missing(self, job: GenerateJob) -> tuple[int, ...]:
        """Starts of images that come without embeddings and are not known, with all before."""
        found, knows = [], True
        for span in job.spans:
            knows = knows and span.identity in self.known
            if not knows and span.embeddings is None:
                found.append(span.start)
        return tuple(found)

    def answer(self, job: GenerateJob) -> None:
        """As an engine does: take the job, or name what is missing."""
        missing = self.missing(job)
        if missing:
            self.num_refused += 1
            self.tell(Missing(job_id=job.job_id, starts=missing))
            return
        self.known |= {span.identity for span in job.spans}
        self.tell(Taken(job_id=job.job_id, is_copied=True, transfer_seconds=0.0))

    def finish(self, job: GenerateJob) -> None:
        self.tell(
            Finished(job_id=job.job_id, reason="stop", num_prompt_tokens=9, num_completion_tokens=1)
        )

    def fail(self, job: GenerateJob, kind: FailKind) -> None:
        self.tell(Failed(job_id=job.job_id, kind=kind, message="why"))
        if kind == "lost":
            self.house.dispatcher.on_lost(ENGINE)

    def tell(self, event: Taken | Missing | Finished | Failed) -> None:
        self.house.dispatcher.on_event(ENGINE, event)

    async def until_asked(self, num_jobs: int) -> GenerateJob:
        """The latest job, once there have been so many."""
        await until(lambda: len(self.house.owners.asked) >= num_jobs)
        return self.house.owners.asked[-1]

    async def show(self, *contents: str) -> None:
        """Have an engine answer a prompt with these images, and all of them encoded."""
        num_sent, num_asked = len(self.house.owners.sent), len(self.house.owners.asked)
        guest = Guest(self, "show", pictures(*contents))
        task = asyncio.create_task(guest.run())
        await until(lambda: len(self.house.owners.sent) == num_sent + len(set(contents)))
        self.house.land(*range(num_sent, len(self.house.owners.sent)))
        job = await self.until_asked(num_asked + 1)
        self.answer(job)
        await task
        self.finish(job)


@dataclass
class Guest:
    """One request under way."""

    inn: Inn
    name: str
    wanted: list[Picture]
    num_choices: int = 1
    cleanup: ExitStack = field(default_factory=ExitStack)

    async def run(self) -> list[Ticket]:
        """Hand the prompt to the engine; its tickets stay open."""
        prompt: Any = SimpleNamespace(
            request_id=self.name,
            tenant=b"",
            num_choices=self.num_choices,
            deadline=REQUEST_SECONDS,
        )
        starts = tuple(10 * index for index in range(len(self.wanted)))
        tokens = PromptTokens(b"", 10 * len(starts), starts, SAMPLING, in_thought=False)
        offer = Offer(
            self.inn.services, cast("Prompt", prompt), self.wanted, tokens, asyncio.Event()
        )
        return await offer.make(self.cleanup)

    async def leave_at_end(self) -> list[Ticket]:
        with self.cleanup:
            return await self.run()


def offer(
    inn: Inn, name: str, *contents: str, num_choices: int = 1
) -> "asyncio.Task[list[Ticket]]":
    return asyncio.create_task(Guest(inn, name, pictures(*contents), num_choices).run())


def by_name(picture: Picture) -> Picture:
    """The picture as a request has it that gave its name alone."""
    return replace(picture, source=replace(picture.source, data=b""), header=None)


def without(job: GenerateJob) -> list[bytes]:
    """Identities of the images that a job shows without embeddings."""
    return [span.identity for span in job.spans if span.embeddings is None]
