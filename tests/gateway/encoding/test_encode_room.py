"""Whether a request's images find room does not hang on who else is being served."""

import asyncio

import pytest

from gateway.encoding.flight import Picture
from gateway.errors import CallerError, NotReady
from tests.gateway.house import PER_TOKEN, UNIT, Caller, House, ask, pictures, run

LARGE = 4 * UNIT  # bytes of a file, and of its embeddings


def two_large() -> list[Picture]:
    """An arena of twelve units has room for one."""
    return pictures(LARGE * "a", LARGE * "b", num_tokens=LARGE // PER_TOKEN)


async def keep(house: House, *contents: str) -> None:
    """Have images encoded and kept."""
    sent = len(house.owners.sent)
    task = ask(house, "keep", *contents)
    await house.until_sent(sent + len(contents))
    house.land(*range(sent, sent + len(contents)))
    await task


def test_a_request_that_fits_no_arena_is_the_callers_mistake() -> None:
    async def work() -> None:
        house = House(num_units=4)
        with pytest.raises(CallerError, match="the limit is 256") as caught:
            await Caller(house, "a", pictures("red", num_tokens=9)).run()
        assert caught.value.code == "images_too_large"
        house.check_idle()

    run(work())


@pytest.mark.parametrize("pool_units", [0, 8])
def test_images_that_never_fit_cost_nobody_what_is_kept(pool_units: int) -> None:
    async def work() -> None:
        house = House(num_units=8, pool_units=pool_units)
        await keep(house, "red", "green")
        with pytest.raises(CallerError) as caught:
            await Caller(house, "a", pictures("huge", num_tokens=9)).run()
        assert caught.value.code == "images_too_large"
        assert house.store.find(b"red") is not None
        assert house.store.find(b"green") is not None
        house.check_idle()

    run(work())


async def load_one_owner(house: House) -> list[int]:
    """Show four images; places in `sent` of the two that are still under way, with one owner."""
    asked = [ask(house, f"load {n}", f"image {n}") for n in range(4)]
    await house.until_sent(4)
    busy = [n for n, (owner, _) in enumerate(house.owners.sent) if owner == 0]
    assert len(busy) == 2
    house.land(*({0, 1, 2, 3} - set(busy)))
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    return busy


def test_a_busy_owner_makes_no_request_too_large() -> None:
    async def work() -> None:
        house = House(num_units=12)
        busy = await load_one_owner(house)
        # By load both would go to the other owner, which has room for one of them.
        task = asyncio.create_task(Caller(house, "big", two_large()).run())
        await house.until_sent(6)
        assert {owner for owner, _ in house.owners.sent[4:]} == {0, 1}
        house.land(*busy, 4, 5)
        assert await task == [LARGE * "a", LARGE * "b"]
        house.check_idle()

    run(work())


def test_a_missing_owner_is_no_mistake_of_the_caller() -> None:
    async def work() -> None:
        house = House(num_units=12)
        house.owners.missing.add(1)
        with pytest.raises(NotReady):
            await Caller(house, "a", two_large()).run()
        house.owners.missing.clear()
        task = asyncio.create_task(Caller(house, "b", two_large()).run())
        await house.until_sent(2)
        house.land(0, 1)
        await task
        house.check_idle()

    run(work())
