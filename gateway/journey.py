"""The life of one request as one sentence: fetch, plan, tokenise, place, encode, generate."""

import asyncio
import time
from collections.abc import Coroutine, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio.to_thread

from gateway.admit import Permit
from gateway.answer import Answer
from gateway.dispatch import Lease, Ticket
from gateway.errors import ImageRejected, ServeError
from gateway.fetch import SourceImage
from gateway.header import ImageHeader, read_header
from gateway.identity import source_digest
from gateway.payload import make_bytes
from gateway.place import ImageTask, Placement, place
from gateway.prompt import ImageRef, Prompt
from gateway.services import Services
from gateway.shelf import Shelf, reserve_shelves
from gateway.text import PromptTokens, build
from workers.families import ImageShapeError
from workers.families.plan import ImagePlan
from workers.messages import EncodeJob, GenerateJob, Pixels, Span, TensorRef

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Picture:
    """One image with what its header told."""

    source: SourceImage
    header: ImageHeader
    task: ImageTask


class Journey:
    """Walks one request from its prompt to its answer. Owned by the request's task.

    What it takes on the way is given back when `cleanup` closes, which never awaits.
    """

    def __init__(self, services: Services, prompt: Prompt, permit: Permit) -> None:
        self._services = services
        self._prompt = prompt
        self._permit = permit

    async def start(self, cleanup: ExitStack) -> Answer:
        """Do everything up to handing the prompt to an engine.

        Raises:
            ServeError: any stage refused or failed.
        """
        pictures = await together(self._look(image) for image in self._prompt.images)
        tokens = await self._tokenise(tuple(picture.task.plan for picture in pictures))
        placement = self._place(pictures)
        with ExitStack() as desk:  # the regions; the ticket holds on to those it still needs
            shelves = await self._reserve(pictures, placement, desk)
            spans = await together(
                self._encode(picture, tokens, shelves[picture.task.index]) for picture in pictures
            )
            leases = list({shelf.owner: shelf.lease for shelf in shelves.values()}.values())
            ticket = self._generate(tokens, placement.engine, tuple(spans), leases)
        cleanup.callback(self._services.dispatcher.close, ticket)
        num_image_tokens = sum(span.num_tokens for span in spans)
        return Answer(self._services, self._prompt, ticket, tokens.num_tokens, num_image_tokens)

    async def _look(self, image: ImageRef) -> Picture:
        services = self._services
        with services.metrics.stage("fetch"):
            source = await services.fetcher.fetch(image)
        if isinstance(image.source, str):
            self._permit.hold(len(source.data))
        services.metrics.image_bytes.inc(len(source.data))
        with services.metrics.stage("header"):
            header = await services.decode_pool.run(
                self._prompt.request_id, read_header, source, services.settings.images
            )
        plan = self._plan(source, header)
        digest = await source_digest(source, services.digest_key)
        services.metrics.image_pixels.inc(header.width * header.height)
        return Picture(source, header, ImageTask(image.index, plan, digest))

    def _plan(self, source: SourceImage, header: ImageHeader) -> ImagePlan:
        try:
            services = self._services
            return services.checkpoint.layout.plan(header.displayed_size, services.backend)
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

    def _place(self, pictures: list[Picture]) -> Placement:
        dispatcher = self._services.dispatcher
        with self._services.metrics.stage("place"):
            owners = dispatcher.candidates("vision") if pictures else ()
            engines = dispatcher.candidates("language")
            return place(tuple(picture.task for picture in pictures), owners, engines)

    async def _reserve(
        self, pictures: list[Picture], placement: Placement, cleanup: ExitStack
    ) -> dict[int, Shelf]:
        tasks = [picture.task for picture in pictures]
        with self._services.metrics.stage("reserve"):
            return await reserve_shelves(self._services.pool, tasks, placement, cleanup)

    async def _encode(self, picture: Picture, tokens: PromptTokens, shelf: Shelf) -> Span:
        task, services = picture.task, self._services
        with services.metrics.stage("decode"):
            pixels = await services.decode_pool.run(
                self._prompt.request_id,
                make_bytes,
                picture.source,
                picture.header,
                task.plan,
                "resized",
            )
        shelf.lease.arena.view(shelf.pixels)[:] = pixels
        job = self._encode_job(task, shelf)
        encoded = await services.dispatcher.encode(shelf.owner, job, shelf.lease)
        return Span(
            start=tokens.image_starts[task.index],
            num_tokens=task.plan.num_tokens,
            grid=task.plan.grid,
            embeddings=TensorRef(shelf.embeddings, encoded.dtype, encoded.shape),
            identity=encoded.feature_digest,
        )

    def _encode_job(self, task: ImageTask, shelf: Shelf) -> EncodeJob:
        height, width = task.plan.resized_size
        return EncodeJob(
            job_id=f"{self._prompt.request_id}/{task.index}",
            plan=task.plan,
            payload=Pixels(shelf.pixels, height, width, 3, "resized"),
            target=shelf.embeddings,
            seconds_left=self._seconds_left(),
        )

    def _generate(
        self, tokens: PromptTokens, engine: int, spans: tuple[Span, ...], leases: list[Lease]
    ) -> Ticket:
        job = GenerateJob(
            job_id=self._prompt.request_id,
            token_ids=tokens.token_ids,
            spans=tuple(sorted(spans, key=lambda span: span.start)),
            sampling=tokens.sampling,
            seconds_left=self._seconds_left(),
        )
        return self._services.dispatcher.generate(engine, job, leases)

    def _seconds_left(self) -> float:
        return self._prompt.deadline - time.monotonic()


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run coroutines at once and give their results in order; the first failure ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        raise _first(failures) from None
    return [task.result() for task in tasks]


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    ours = [error for error in failures.exceptions if isinstance(error, ServeError)]
    return ours[0] if ours else failures.exceptions[0]
