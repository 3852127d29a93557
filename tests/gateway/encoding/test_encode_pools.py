"""Embeddings in pools that go with their owners: lost by name, and nothing left behind."""

import asyncio
import random

import pytest

from gateway.errors import CallerError, NotReady, WorkerLost
from tests.gateway.house import UNIT, Caller, House, ask, pictures, run, until


def test_payloads_lie_in_the_arena_and_embeddings_in_the_pool() -> None:
    async def work() -> None:
        house = House(pool_units=8)
        task = ask(house, "a", "red", "green")
        for worker, job in await house.until_sent(2):
            assert job.payload.region.pool == 0
            assert job.target.pool == house.owners.places[worker].pool > 0
        house.land(0, 1)
        assert await task == ["red", "green"]
        assert await ask(house, "b", "green") == ["green"]
        assert len(house.owners.sent) == 2
        house.check_idle()

    run(work())


def test_what_lay_in_a_dead_owners_pool_is_encoded_again_and_the_rest_is_kept() -> None:
    async def work() -> None:
        house = House(pool_units=8)
        names = [f"image {number}" for number in range(6)]
        task = ask(house, "a", *names)
        sent = await house.until_sent(6)
        house.land(*range(6))
        assert await task == names
        dead = sent[0][0]
        num_lost = sum(worker == dead for worker, _ in sent)
        assert 0 < num_lost < 6
        house.die(dead)
        assert house.store.idle_bytes(dead) == 0
        again = ask(house, "b", *names)
        await house.until_sent(6 + num_lost)
        house.land(*range(6, 6 + num_lost))
        assert await again == names
        house.check_idle()

    run(work())


def test_a_request_whose_first_image_is_lost_before_its_second_lands_is_told_so() -> None:
    async def work() -> None:
        house = House(pool_units=8)
        names = [f"image {number}" for number in range(6)]
        task = ask(house, "a", *names)
        sent = await house.until_sent(6)
        dead = sent[0][0]
        first = [place for place, (worker, _) in enumerate(sent) if worker == dead]
        house.land(*first)
        await until(lambda: house.encoder.num_flights == 6 - len(first))
        house.die(dead)
        house.land(*(set(range(6)) - set(first)))
        with pytest.raises(WorkerLost, match="embeddings is gone"):
            await task
        await until(lambda: house.dispatcher.num_jobs == 0)
        house.check_idle()

    run(work())


def test_nothing_is_sent_to_a_place_that_went_while_an_image_was_decoded() -> None:
    async def work() -> None:
        house = House(pool_units=8)
        house.payloads.gate.clear()
        task = ask(house, "a", "red")
        await until(lambda: house.payloads.num_made == 1)
        for owner in range(2):
            house.die(owner)
        house.payloads.gate.set()
        with pytest.raises(WorkerLost):
            await task
        assert house.owners.sent == []
        house.check_idle()

    run(work())


def test_embeddings_that_land_with_their_owners_last_word_are_not_kept() -> None:
    async def work() -> None:
        house = House(pool_units=8)
        task = ask(house, "a", "red")
        ((owner, _),) = await house.until_sent(1)
        house.land(0)
        house.die(owner)  # before any task has run
        with pytest.raises(WorkerLost):
            await task
        assert house.store.find(b"red") is None
        house.check_idle()

    run(work())


def test_whoever_waits_for_room_in_a_pool_that_goes_is_told_so() -> None:
    async def work() -> None:
        house = House(pool_units=1)
        held = [ask(house, str(n), f"held {n}") for n in range(8)]
        await asyncio.sleep(0.05)
        for owner in range(2):
            house.die(owner)
        results = await asyncio.gather(*held, return_exceptions=True)
        assert {type(result) for result in results} == {WorkerLost, NotReady}
        house.check_idle()

    run(work())


def test_a_request_that_fits_no_pool_is_the_callers_mistake() -> None:
    async def work() -> None:
        house = House(pool_units=4)
        with pytest.raises(CallerError, match=f"the limit is {4 * UNIT}") as caught:
            await Caller(house, "a", pictures("red", num_tokens=9)).run()
        assert caught.value.code == "images_too_large"
        house.check_idle()

    run(work())


async def ask_and_maybe_leave(house: House, name: str, chance: random.Random) -> bool:
    """Whether the request was served; if not, it was cancelled or told what was lost."""
    wanted = chance.choices([f"image {number}" for number in range(8)], k=chance.randrange(1, 4))
    task = ask(house, name, *wanted)
    if chance.random() < 0.2:
        await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert result == wanted or isinstance(result, asyncio.CancelledError | WorkerLost | NotReady)
    return result == wanted


async def answer(house: House) -> None:
    """Let jobs succeed in order, but for those whose owner has died; until cancelled."""
    answered = 0
    while True:
        await asyncio.sleep(0.001)
        if answered < len(house.owners.sent):
            worker, job = house.owners.sent[answered]
            if job.target.pool == house.owners.places[worker].pool:
                house.land(answered)
            answered += 1


async def kill(house: House, chance: random.Random) -> None:
    for _ in range(100):
        await asyncio.sleep(0.002)
        house.die(chance.randrange(2))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_hundred_deaths_under_traffic_leave_nothing_behind(seed: int) -> None:
    """Requests that come, go and are cancelled while owners die; small pools, small arenas."""

    async def work() -> None:
        chance = random.Random(seed)
        house = House(num_units=12, share=0.4, pool_units=6)
        server = asyncio.create_task(answer(house))
        killer = asyncio.create_task(kill(house, chance))
        served: list[bool] = []
        while not killer.done():
            names = [f"{len(served)}.{number}" for number in range(20)]
            served += await asyncio.gather(*(ask_and_maybe_leave(house, n, chance) for n in names))
        await until(lambda: house.dispatcher.num_jobs == 0)
        server.cancel()
        await killer
        assert any(served)
        assert not all(served)
        house.check_idle()

    run(work())
