"""Images whose embeddings are gone are encoded only if the engine lacks them as well."""

import asyncio

import pytest

from gateway.errors import ImageRejected
from tests.gateway.house import UNIT, House, pictures, run, until
from tests.gateway.offers import ENGINE, Guest, Inn, by_name, offer, without


def forgetful(num_units: int = 64) -> Inn:
    """Where no embeddings are kept once nobody needs them."""
    return Inn(House(num_units, share=0.0))


def test_an_image_that_the_engine_knows_is_not_encoded() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red", "green")
        task = offer(inn, "again", "red", "green")
        job = await inn.until_asked(2)
        assert without(job) == [b"red", b"green"]
        assert [span.start for span in job.spans] == [0, 10]
        inn.answer(job)
        (ticket,) = await task
        assert ticket.missing == ()
        inn.finish(job)
        assert len(inn.house.owners.sent) == 2
        assert inn.house.payloads.num_made == 2
        inn.house.check_idle()

    run(work())


def test_only_what_the_engine_misses_is_encoded() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red", "green", "blue")
        inn.known -= {b"green", b"blue"}
        task = offer(inn, "again", "red", "green", "blue")
        first = await inn.until_asked(2)
        inn.answer(first)
        assert [job.plan.num_tokens for _, job in await inn.house.until_sent(5)] == [1] * 5
        inn.house.land(3, 4)
        second = await inn.until_asked(3)
        assert second.job_id == first.job_id
        assert without(second) == [b"red"]
        inn.answer(second)
        await task
        inn.finish(second)
        inn.house.check_idle()

    run(work())


def test_what_is_lost_between_two_offers_is_encoded_as_well() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red", "green")
        inn.known -= {b"green"}
        task = offer(inn, "again", "red", "green")
        inn.answer(await inn.until_asked(2))
        await inn.house.until_sent(3)
        inn.known.clear()
        inn.house.land(2)
        inn.answer(await inn.until_asked(3))
        await inn.house.until_sent(4)
        inn.house.land(3)
        last = await inn.until_asked(4)
        assert without(last) == []
        inn.answer(last)
        await task
        inn.finish(last)
        inn.house.check_idle()

    run(work())


@pytest.mark.parametrize("again", [("new", "red"), ("red", "new", "red")])
def test_what_stands_behind_a_new_image_is_encoded_at_once(again: tuple[str, ...]) -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red")
        task = offer(inn, "again", *again)
        await inn.house.until_sent(3)
        inn.house.land(1, 2)
        job = await inn.until_asked(2)
        assert without(job) == []
        await task  # nothing can be missing, so nobody waits for the engine
        inn.finish(job)
        inn.house.check_idle()

    run(work())


def test_embeddings_that_are_kept_or_on_their_way_are_sent() -> None:
    async def work() -> None:
        inn = Inn(House())
        await inn.show("red")
        kept = offer(inn, "kept", "red")
        assert without(await inn.until_asked(2)) == []
        flying = [offer(inn, name, "blue") for name in ("first", "second")]
        await inn.house.until_sent(2)
        inn.house.land(1)
        job = await inn.until_asked(4)
        assert without(job) == []
        for task in (kept, *flying):
            await task
        for asked in inn.house.owners.asked[1:]:
            inn.finish(asked)
        inn.house.check_idle()

    run(work())


def test_a_name_is_enough_for_what_the_engine_knows_and_else_asks_for_the_image() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red", "green")
        shown = [by_name(picture) for picture in pictures("red", "green")]
        task = asyncio.create_task(Guest(inn, "known", shown).run())
        job = await inn.until_asked(2)
        inn.answer(job)
        await task
        inn.finish(job)
        inn.known -= {b"green"}
        task = asyncio.create_task(Guest(inn, "unknown", shown).leave_at_end())
        inn.answer(await inn.until_asked(3))
        with pytest.raises(ImageRejected) as caught:
            await task
        assert (caught.value.code, caught.value.index) == ("image_not_kept", 1)
        inn.house.check_idle()

    run(work())


def test_choices_that_miss_an_image_are_offered_again_alone() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red")
        task = offer(inn, "again", "red", num_choices=3)
        await inn.until_asked(4)
        first, second, third = inn.house.owners.asked[1:]
        inn.answer(first)
        inn.known.clear()
        inn.answer(second)
        inn.answer(third)
        await inn.house.until_sent(2)
        inn.house.land(1)
        await inn.until_asked(6)
        assert [job.job_id for job in inn.house.owners.asked[4:]] == ["again.1", "again.2"]
        tickets = await task
        assert [ticket.job_id for ticket in tickets] == ["again", "again.1", "again.2"]
        for job in (first, second, third):
            inn.finish(job)
        inn.house.check_idle()

    run(work())


@pytest.mark.parametrize("stage", ["decided", "encoded"])
def test_a_client_that_leaves_while_others_decide_leaves_nothing_behind(stage: str) -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red")
        guest = Guest(inn, "leaver", pictures("red"))
        task = asyncio.create_task(guest.leave_at_end())
        job = await inn.until_asked(2)
        if stage == "encoded":
            inn.known.clear()
            inn.answer(job)
            await inn.house.until_sent(2)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert inn.house.owners.aborted[-1] == {"decided": "leaver", "encoded": "leaver/0"}[stage]
        if stage == "decided":
            inn.finish(job)
        else:
            inn.house.land(1)
        await asyncio.sleep(0)
        assert inn.house.encoder.num_flights == 0
        inn.house.check_idle()

    run(work())


def test_an_engine_that_dies_before_it_decides_ends_the_request() -> None:
    async def work() -> None:
        inn = forgetful()
        await inn.show("red")
        task = offer(inn, "again", "red")
        inn.fail(await inn.until_asked(2), "lost")
        (ticket,) = await task
        assert ticket.end is not None
        inn.traces.forget(ENGINE)
        later = offer(inn, "later", "red")
        await inn.house.until_sent(2)
        inn.house.land(1)
        job = await inn.until_asked(3)
        await later
        inn.finish(job)
        inn.house.check_idle()

    run(work())


def test_nobody_waits_for_room_while_holding_some() -> None:
    """Two requests each hold what is new and miss what is old; both fill an owner's arena."""

    async def work() -> None:
        inn = forgetful(num_units=6)
        for old in ("old a", "old b"):
            await inn.show(old)
        inn.known.clear()
        for owner in (0, 1):  # two units are left in each arena
            assert inn.house.owners.arenas[owner].allocate(4 * UNIT) is not None
        tasks = [offer(inn, name, f"old {name}", f"new {name}") for name in "ab"]
        answered = landed = 2
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.001)
            if len(inn.house.owners.sent) >= 4:  # both hold their new image
                inn.house.land(*range(landed, len(inn.house.owners.sent)))
                landed = len(inn.house.owners.sent)
            for job in inn.house.owners.asked[answered:]:
                is_taken = not inn.missing(job)
                inn.answer(job)
                if is_taken:
                    inn.finish(job)
                answered += 1
        await until(lambda: inn.house.dispatcher.num_jobs == 0)

    run(work())
