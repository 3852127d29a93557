"""Several coroutines of one request at once."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from gateway.errors import ServeError

Result = TypeVar("Result")


async def together(work: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Run coroutines at once and give their results in order; the first failure ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except BaseExceptionGroup as failures:
        # A failure leads to this frame, which must not lead back: `gateway.exchange` says why.
        failures.__traceback__ = None
        del group, tasks
        raise _first(failures) from None
    return [task.result() for task in tasks]


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    ours = [error for error in failures.exceptions if isinstance(error, ServeError)]
    return ours[0] if ours else failures.exceptions[0]
