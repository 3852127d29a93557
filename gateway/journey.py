"""The life of one request as one sentence: fetch, plan, tokenise, encode, generate."""

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack

import anyio.to_thread

from gateway.admit import Permit
from gateway.answer import Answer, Answers
from gateway.dispatch import Ticket
from gateway.embeddings import Entry
from gateway.errors import ImageRejected
from gateway.fetch import SourceImage
from gateway.flight import Picture
from gateway.flow import together
from gateway.header import ImageHeader, read_header
from gateway.identity import FILE, source_digest
from gateway.lease import Share
from gateway.names import Shown, image_not_kept
from gateway.place import ImageTask, choose_engine
from gateway.prompt import ImageRef, Prompt
from gateway.sampling import for_choice
from gateway.services import Services
from gateway.tensors import TensorHeader, check_tensors, read_tensors
from gateway.text import PromptTokens, build, refuse_hopeless
from workers.families import ImageShapeError
from workers.families.plan import ImagePlan
from workers.messages import GenerateJob, Span


class Journey:
    """Walks one request from its prompt to its answer. Owned by the request's task.

    What it takes on the way is given back when `cleanup` closes, which never awaits.
    """

    def __init__(self, services: Services, prompt: Prompt, permit: Permit) -> None:
        self._services = services
        self._prompt = prompt
        self._permit = permit

    async def start(self, cleanup: ExitStack) -> Answers:
        """Do everything up to handing the prompt to an engine.

        Raises:
            ServeError: any stage refused or failed.
        """
        refuse_hopeless(self._prompt, self._services.max_context_tokens())
        pictures = await together(self._look(image) for image in self._prompt.images)
        tokens = await self._tokenise(tuple(picture.task.plan for picture in pictures))
        with ExitStack() as desk:
            encoder, request_id = self._services.encoder, self._prompt.request_id
            entries, seats = await encoder.obtain(pictures, request_id, desk)
            self._learn_names(pictures)
            share = Share(seats)
            desk.pop_all()  # the seats are the share's, which jobs hold until they need it no more
            desk.callback(share.release)
            wake = asyncio.Event()
            tickets = self._generate(self._jobs(tokens, entries), share, wake, cleanup)
        answers = [
            Answer(self._services, self._prompt, ticket, choice)
            for choice, ticket in enumerate(tickets)
        ]
        num_image_tokens = sum(entry.plan.num_tokens for entry in entries)
        return Answers(self._services, answers, wake, tokens.num_tokens, num_image_tokens)

    async def _look(self, image: ImageRef) -> Picture:
        if image.source is None:
            return self._recall(image)
        services = self._services
        with services.metrics.stage("fetch"):
            source = await services.fetcher.fetch(image)
        if isinstance(image.source, str):
            self._permit.hold(len(source.data))
        services.metrics.image_bytes.inc(len(source.data))
        look = self._look_at_file if image.form == "file" else self._look_at_tensors
        return await look(source)

    async def _look_at_file(self, source: SourceImage) -> Picture:
        services = self._services
        with services.metrics.stage("header"):
            header = await services.decode_pool.run(
                self._prompt.request_id, read_header, source, services.settings.images
            )
        services.metrics.image_pixels.inc(header.width * header.height)
        return await self._picture(source, header, FILE)

    async def _look_at_tensors(self, file: SourceImage) -> Picture:
        services = self._services
        with services.metrics.stage("header"):
            source, header = await services.decode_pool.run(
                self._prompt.request_id, read_tensors, file
            )
        return await self._picture(source, header, header.frame)

    async def _picture(
        self, source: SourceImage, header: ImageHeader | TensorHeader, kind: bytes
    ) -> Picture:
        plan = self._plan(source, header)
        if isinstance(header, TensorHeader):
            check_tensors(source, header, plan)
        tenant, key = self._prompt.tenant, self._services.digest_key
        digest = await source_digest(source.data, plan, tenant, key, kind)
        return Picture(source, header, ImageTask(source.index, plan, digest))

    def _recall(self, image: ImageRef) -> Picture:
        """An image that was shown before, by the caller's name for it."""
        shown = self._services.names.find(self._prompt.tenant, image.name or "")
        if shown is None or shown.form != image.form:
            raise image_not_kept(image.index, image.param)
        source = SourceImage(image.index, image.param, b"")
        return Picture(source, None, ImageTask(image.index, shown.plan, shown.digest))

    def _learn_names(self, pictures: list[Picture]) -> None:
        """Note the callers' names of images that were shown and have been encoded.

        One that came by its name alone shows nothing: it may mean another image by now.
        """
        for image, picture in zip(self._prompt.images, pictures, strict=True):
            if image.name is not None and image.source is not None:
                shown = Shown(picture.task.digest, picture.task.plan, image.form)
                self._services.names.learn(self._prompt.tenant, image.name, shown)

    def _plan(self, source: SourceImage, header: ImageHeader | TensorHeader) -> ImagePlan:
        layout, backend = self._services.checkpoint.layout, self._services.backend
        try:
            if isinstance(header, TensorHeader):
                return layout.plan_grid(header.grid, backend)
            return layout.plan(header.displayed_size, backend)
        except ImageShapeError as error:
            raise ImageRejected(
                str(error),
                index=source.index,
                stage="limit",
                param=source.param,
                code="invalid_image_shape",
            ) from error

    async def _tokenise(self, plans: tuple[ImagePlan, ...]) -> PromptTokens:
        services = self._services
        limit = services.max_context_tokens()
        with services.metrics.stage("tokenise"):
            return await anyio.to_thread.run_sync(
                build, self._prompt, plans, services.checkpoint, limit
            )

    def _generate(
        self, jobs: Iterable[GenerateJob], share: Share, wake: asyncio.Event, cleanup: ExitStack
    ) -> list[Ticket]:
        """Hand the jobs of all choices to one engine."""
        dispatcher = self._services.dispatcher
        engine = choose_engine(dispatcher.engines())
        tickets = []
        for job in jobs:
            tickets.append(dispatcher.generate(engine, job, share, wake))
            cleanup.callback(dispatcher.close, tickets[-1])
        return tickets

    def _jobs(self, tokens: PromptTokens, entries: list[Entry]) -> Iterator[GenerateJob]:
        spans = [
            Span(
                start=start,
                num_tokens=entry.plan.num_tokens,
                grid=entry.plan.grid,
                embeddings=entry.tensor,
                identity=entry.identity,
            )
            for start, entry in zip(tokens.image_starts, entries, strict=True)
        ]
        for choice in range(self._prompt.num_choices):
            yield GenerateJob(
                job_id=f"{self._prompt.request_id}.{choice}" if choice else self._prompt.request_id,
                salt=self._prompt.tenant,
                token_ids=tokens.token_ids,
                spans=tuple(sorted(spans, key=lambda span: span.start)),
                sampling=for_choice(tokens.sampling, choice),
                seconds_left=self._prompt.deadline - time.monotonic(),
            )
