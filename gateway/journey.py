"""The life of one request as one sentence: fetch, plan, tokenise, encode, generate."""

import asyncio
from contextlib import ExitStack
from dataclasses import replace

import anyio.to_thread

from gateway.answers.answer import Answer, Started
from gateway.answers.prompt_log import PromptLog
from gateway.edge.admit import Permit
from gateway.encoding.flight import Picture
from gateway.encoding.names import Shown, image_not_kept
from gateway.encoding.place import ImageTask
from gateway.errors import ImageRejected
from gateway.flow import together
from gateway.images.fetch import SourceImage
from gateway.images.header import ImageHeader, read_header
from gateway.images.identity import FILE, source_digest
from gateway.images.tensors import TensorHeader, check_tensors, read_tensors
from gateway.offer import Offer
from gateway.prompts.prompt import ImageRef, Prompt
from gateway.prompts.text import PromptTokens, build, refuse_hopeless
from gateway.services import Services
from gateway.structured.grammar import check_grammar
from workers.families import ImageShapeError
from workers.families.plan import ImagePlan


class Journey:
    """Walks one request from its prompt to its answer. Owned by the request's task.

    What it takes on the way is given back when `cleanup` closes, which never awaits.
    """

    def __init__(self, services: Services, prompt: Prompt, permit: Permit, arrival: int) -> None:
        """`arrival` tells the order in which requests came."""
        self._services = services
        # Every route walks this way, so none can forget whose request it is.
        self._prompt = replace(prompt, tenant=permit.account.tenant)
        self._permit = permit
        self._arrival = arrival
        self._seen: tuple[list[Picture], PromptTokens] | None = None
        self._num_starts = 0

    async def start(
        self, cleanup: ExitStack, wake: asyncio.Event, first_choice: int = 0
    ) -> Started:
        """Do everything up to an engine's taking the prompt.

        Args:
            cleanup: gives back what is taken on the way.
            wake: is set whenever there is news of an answer.
            first_choice: the number of this prompt's first answer among all of the request.

        When it is called again, after a worker was lost, what was read stays as it was.

        Raises:
            ServeError: any stage refused or failed.
        """
        pictures, tokens = self._seen = self._seen or await self._read_first()
        self._num_starts += 1
        prompt = replace(self._prompt, request_id=self._job_id)
        tickets = await Offer(self._services, prompt, pictures, tokens, wake).make(cleanup)
        self._permit.finish_images()
        self._learn_names(pictures)
        answers = tuple(
            Answer(
                self._services,
                self._prompt,
                ticket,
                first_choice + choice,
                tokens.in_thought,
                None if choice else self._log_of(tokens),
            )
            for choice, ticket in enumerate(tickets)
        )
        num_image_tokens = sum(picture.task.plan.num_tokens for picture in pictures)
        return Started(answers, tokens.num_tokens, num_image_tokens)

    async def _read_first(self) -> tuple[list[Picture], PromptTokens]:
        limit = self._services.max_context_tokens()
        room = self._services.kv_cache_tokens()  # now: engines that die meanwhile come back
        refuse_hopeless(self._prompt, limit)
        if self._prompt.grammar is not None:
            with self._services.metrics.stage("grammar"):
                await anyio.to_thread.run_sync(check_grammar, self._prompt.grammar)
        pictures, tokens = await self._read(limit)
        num_tokens = tokens.num_tokens + self._prompt.num_choices * tokens.sampling.max_tokens
        self._permit.demand(num_tokens, room)
        if tokens.sampling.prompt_logprobs:
            num_told = tokens.num_tokens * self._prompt.num_choices
            self._permit.score(num_told * (1 + tokens.sampling.top_logprobs))
        return pictures, tokens

    def _log_of(self, tokens: PromptTokens) -> PromptLog | None:
        """What is to be told of the prompt's own tokens, which the first choice tells."""
        if not tokens.sampling.prompt_logprobs:
            return None
        return PromptLog(self._services.checkpoint.speller, tokens)

    async def count(self, max_tokens: int) -> PromptTokens:
        """The prompt's tokens, from its text and what images' files say about themselves.

        Raises:
            ServeError: a stage refused, or the prompt has `max_tokens` or more.
        """
        _, tokens = await self._read(max_tokens)
        return tokens

    async def _read(self, max_context_tokens: int) -> tuple[list[Picture], PromptTokens]:
        self._permit.account.take_images(len(self._prompt.images))
        pictures = await together(self._look(image) for image in self._prompt.images)
        plans = tuple(picture.task.plan for picture in pictures)
        return pictures, await self._tokenise(plans, max_context_tokens)

    @property
    def _job_id(self) -> str:
        """Another one for each start: an earlier job of the same name may not have ended yet."""
        request_id, again = self._prompt.request_id, self._num_starts - 1
        return f"{request_id}+{again}" if again else request_id

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
        self._permit.measure(header.width * header.height)
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
        plan = self._plan(source, header, self._prompt.images[source.index].max_pixels)
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
        """Note the callers' names of images that were shown and have been seen by an engine.

        One that came by its name alone shows nothing: it may mean another image by now.
        """
        tenant, arrival = self._prompt.tenant, self._arrival
        for image, picture in zip(self._prompt.images, pictures, strict=True):
            if image.name is not None and image.source is not None:
                shown = Shown(picture.task.digest, picture.task.plan, image.form)
                self._services.names.learn(tenant, image.name, shown, arrival)

    def _plan(
        self, source: SourceImage, header: ImageHeader | TensorHeader, max_pixels: int | None
    ) -> ImagePlan:
        layout, backend = self._services.checkpoint.layout, self._services.backend
        try:
            if isinstance(header, TensorHeader):
                return layout.plan_grid(header.grid, backend)
            return layout.plan(header.displayed_size, backend, max_pixels)
        except ImageShapeError as error:
            raise ImageRejected(
                str(error),
                index=source.index,
                stage="limit",
                param=source.param,
                code="invalid_image_shape",
            ) from error

    async def _tokenise(self, plans: tuple[ImagePlan, ...], limit: int) -> PromptTokens:
        services = self._services
        with services.metrics.stage("tokenise"):
            return await anyio.to_thread.run_sync(
                build, self._prompt, plans, services.checkpoint, limit
            )
