"""Many requests whose images an engine knows for a while: all end, and nothing is left behind."""

import asyncio
import random

import pytest

from gateway.errors import ImageRejected, WorkerLost
from tests.gateway.house import House, pictures, run, until
from tests.gateway.offers import ENGINE, Guest, Inn, by_name

NAMES = [f"image {number}" for number in range(40)] + ["bad 1", "bad 2"]


async def serve(inn: Inn, chance: random.Random) -> None:
    """Encode and answer; the engine forgets, owners and engine die now and then; to the end."""
    owners, landed, answered = inn.house.owners, 0, 0
    while True:
        await asyncio.sleep(0.001)
        if landed < len(owners.sent):
            if chance.random() < 0.1:
                inn.house.fail(landed, "lost")
            else:
                inn.house.land(landed)
            landed += 1
        if inn.known and chance.random() < 0.03:
            inn.known.remove(chance.choice(sorted(inn.known)))
        if answered < len(owners.asked):
            job = owners.asked[answered]
            answered += 1
            if chance.random() < 0.03:
                inn.fail(job, "lost")
                inn.traces.forget(ENGINE)
                inn.known.clear()
            elif inn.missing(job):
                inn.answer(job)
            else:
                inn.answer(job)
                inn.finish(job)


async def visit(inn: Inn, name: str, chance: random.Random) -> str:
    """One request; what became of it."""
    wanted = pictures(*chance.choices(NAMES, weights=[5] * 40 + [2] * 2, k=chance.randrange(1, 4)))
    if chance.random() < 0.2:
        wanted = list(map(by_name, wanted))
    guest = Guest(inn, name, wanted, num_choices=chance.choice([1, 1, 3]))
    task = asyncio.create_task(guest.leave_at_end())
    if chance.random() < 0.2:
        await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    if isinstance(result, ImageRejected):
        source = wanted[result.index].source
        assert not source.data or source.data.startswith(b"bad")
    elif isinstance(result, BaseException):
        assert isinstance(result, asyncio.CancelledError | WorkerLost), result
    return "served" if isinstance(result, list) else "refused"


@pytest.mark.parametrize("seed", range(6))
def test_random_offers_end_and_leave_nothing_behind(seed: int) -> None:
    """Repeats, names alone, cancels, deaths and an engine that forgets, in small arenas."""
    chance = random.Random(seed)

    async def work() -> None:
        inn = Inn(House(num_units=14, share=0.0))
        server = asyncio.create_task(serve(inn, chance))
        door, ends = asyncio.Semaphore(4), list[str]()

        async def enter(name: str) -> None:
            async with door:
                ends.append(await visit(inn, name, chance))

        await asyncio.gather(*(enter(str(number)) for number in range(150)))
        await until(lambda: inn.house.dispatcher.num_jobs == 0)
        server.cancel()
        inn.house.check_idle()
        assert ends.count("served") > 40
        assert inn.house.metrics.embedding_lookups.labels("covered")._value.get() >= 1
        assert inn.num_refused >= 1

    run(work())
