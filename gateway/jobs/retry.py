"""Work on a request in, its outcome out: begun again where a worker died and nothing was told."""

import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import TypeVar

import anyio

from gateway.errors import NotReady, WorkerLost
from gateway.services import Services

Outcome = TypeVar("Outcome")

MAX_DEATHS = 2
# Deaths that have nothing to do with a request do not count, but this has to end some time.
MAX_TRIES = 10
_LOOK_SECONDS = 1.0

log = logging.getLogger(__name__)


class Tries:
    """Owned by the request's task."""

    def __init__(self, services: Services, request_id: str) -> None:
        self._services = services
        self._request_id = request_id
        # Who comes while no worker is there is refused at once; who was let in waits for one.
        self._may_wait = services.is_ready()
        self._num_deaths = 0
        self._num_losses = 0

    async def run(
        self, work: Callable[[ExitStack], Awaitable[Outcome]], cleanup: ExitStack
    ) -> Outcome:
        """Do the work, and once more if a worker died of it or with it; waits for a worker.

        What each try takes it gives back before the next; what the last one holds, `cleanup`
        gives back. Whoever calls this sets the time limit.

        Raises:
            ServeError: the work failed for another reason, or has failed too often.
        """
        while True:
            try:
                with ExitStack() as desk:
                    outcome = await work(desk)
                    cleanup.push(desk.pop_all())
                    return outcome
            except WorkerLost as error:
                self._count(error)
            except NotReady:
                if not self._may_wait:
                    raise
                with anyio.move_on_after(_LOOK_SECONDS):
                    await self._services.revival.wait()
            await self._until_ready()

    def _count(self, error: WorkerLost) -> None:
        """Raise the error if there was enough of it."""
        self._num_losses += 1
        self._num_deaths += error.is_suspect
        if self._num_deaths >= MAX_DEATHS or self._num_losses >= MAX_TRIES:
            raise error
        self._services.metrics.retries.inc()
        log.info("request %s: begun again, for a worker was lost", self._request_id)

    async def _until_ready(self) -> None:
        while not self._services.pool.fleet().is_ready:
            await self._services.revival.wait()
