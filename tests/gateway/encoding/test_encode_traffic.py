"""Many requests in arenas that are too small: each gets its own, and nothing is left behind."""

import asyncio
import random

import pytest

from gateway.errors import ImageRejected, WorkerLost
from tests.gateway.house import House, ask, run, until


def check_result(result: list[str] | BaseException, wanted: list[str]) -> None:
    """A request gets what it asked for, or a fault of its own or of its owner."""
    if isinstance(result, ImageRejected):
        assert wanted[result.index].startswith("bad")
    else:
        assert result == wanted or isinstance(result, asyncio.CancelledError | WorkerLost)


async def serve(house: House, chance: random.Random) -> None:
    """Answer jobs in order, one in ten with the owner's death; until cancelled."""
    answered = 0
    while True:
        await asyncio.sleep(0.001)
        if answered < len(house.owners.sent):
            if chance.random() < 0.1:
                house.fail(answered, "lost")
            else:
                house.land(answered)
            answered += 1


def test_full_arenas_make_requests_wait_in_line_and_all_get_served() -> None:
    """Every request needs most of an arena, some of it for images that others show as well."""

    async def work() -> None:
        house = House(num_units=8)
        shown = [f"picture {number}" for number in range(6)]
        tasks = [ask(house, str(n), shown[n % 6], f"own {n}") for n in range(24)]
        answered = 0
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            house.land(*range(answered, len(house.owners.sent)))
            answered = len(house.owners.sent)
        for n, task in enumerate(tasks):
            assert task.result() == [shown[n % 6], f"own {n}"]
        house.check_idle()

    run(work())


@pytest.mark.parametrize("seed", range(6))
def test_random_traffic_gives_each_its_own_and_leaves_nothing_behind(seed: int) -> None:
    """Repeats, cancels, deaths and damaged files at once, in arenas that are too small."""
    chance = random.Random(seed)
    names = [f"image {number}" for number in range(8)] + ["bad 1", "bad 2"]

    async def one(house: House, name: str) -> None:
        wanted = chance.choices(names, weights=[5] * 8 + [1] * 2, k=chance.randrange(1, 4))
        task = ask(house, name, *wanted)
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() * 0.02)
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        check_result(result, wanted)

    async def work() -> None:
        house = House(num_units=12, share=0.4)
        server = asyncio.create_task(serve(house, chance))
        await asyncio.gather(*(one(house, str(number)) for number in range(150)))
        await until(lambda: house.dispatcher.num_jobs == 0)
        server.cancel()
        house.check_idle()

    run(work())
