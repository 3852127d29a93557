"""Images are encoded once for all who want them, and what fails is nobody else's."""

import asyncio
from dataclasses import replace

import pytest

from gateway.encoding.flight import Flight, Picture, Room
from gateway.encoding.lease import Lease
from gateway.errors import ImageRejected, WorkerLost
from tests.gateway.house import (
    REQUEST_SECONDS,
    UNIT,
    Caller,
    House,
    ask,
    encoded,
    pictures,
    run,
)
from workers.arena import Arena
from workers.messages import Encoded, EncodeJob, Pixels


def test_equal_images_of_a_request_are_encoded_once_and_come_back_in_order() -> None:
    async def work() -> None:
        house = House()
        task = ask(house, "a", "red", "green", "red", "blue", "red")
        await house.until_sent(3)
        house.land(2, 0, 1)
        assert await task == ["red", "green", "red", "blue", "red"]
        assert house.payloads.num_made == 3
        house.check_idle()

    run(work())


def test_an_image_that_was_shown_before_is_neither_decoded_nor_sent() -> None:
    async def work() -> None:
        house = House()
        first = ask(house, "a", "red", "green")
        await house.until_sent(2)
        house.land(0, 1)
        await first
        assert await ask(house, "b", "green", "red") == ["green", "red"]
        assert (house.payloads.num_made, len(house.owners.sent)) == (2, 2)
        house.check_idle()

    run(work())


def test_requests_at_once_share_one_flight() -> None:
    async def work() -> None:
        house = House()
        tasks = [ask(house, name, "red") for name in "abc"]
        await house.until_sent(1)
        house.land(0)
        assert await asyncio.gather(*tasks) == [["red"]] * 3
        assert len(house.owners.sent) == 1
        house.check_idle()

    run(work())


def test_a_flight_outlives_the_request_that_started_it() -> None:
    async def work() -> None:
        house = House()
        first, second = ask(house, "a", "red"), ask(house, "b", "red")
        await house.until_sent(1)
        first.cancel()
        await asyncio.wait([first])
        assert house.owners.aborted == []
        house.land(0)
        assert await second == ["red"]
        house.check_idle()

    run(work())


def test_a_flight_has_time_for_whoever_joins_when_the_first_request_runs_out_of_it() -> None:
    async def work() -> None:
        house = House()
        task = ask(house, "a", "red")
        ((_, job),) = await house.until_sent(1)
        assert 2 * REQUEST_SECONDS - 5 < job.seconds_left <= 2 * REQUEST_SECONDS
        house.land(0)
        await task

    run(work())


def test_a_flight_that_all_have_left_is_aborted_and_can_be_flown_again() -> None:
    async def work() -> None:
        house = House()
        gone = [ask(house, name, "red") for name in "ab"]
        await house.until_sent(1)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
        again = ask(house, "c", "red")
        await house.until_sent(2)
        assert house.owners.aborted == ["a/0"]
        house.fail(0, "internal")  # the last word on the aborted job
        house.land(1)
        assert await again == ["red"]
        house.check_idle()

    run(work())


def test_failures_reach_all_who_wait_by_their_own_index_and_are_not_kept() -> None:
    async def work() -> None:
        house = House()
        tasks = [ask(house, "a", "bad"), ask(house, "b", "green", "bad")]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [error.index for error in results if isinstance(error, ImageRejected)] == [0, 1]
        assert "image 1: damaged" in str(results[1])
        with pytest.raises(ImageRejected):
            await ask(house, "c", "bad")
        assert house.payloads.num_made >= 2
        for _, job in house.owners.sent:  # green, which was given up
            house.dispatcher.on_event(0, encoded(job, b""))
        house.check_idle()

    run(work())


def test_what_an_owner_will_not_take_is_the_fault_of_each_callers_own_image() -> None:
    async def work() -> None:
        house = House()
        tasks = [ask(house, "a", "tensor"), ask(house, "b", "green", "tensor")]
        await house.until_sent(2)
        by_number = {job.job_id: place for place, (_, job) in enumerate(house.owners.sent)}
        house.fail(by_number["a/0"], "bad_input")
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for index, error in enumerate(results):
            assert isinstance(error, ImageRejected)
            assert (error.status, error.code) == (400, "invalid_tensors")
            assert (error.index, error.stage) == (index, "encode")
            assert error.param == f"messages[0].content[{index}]"
            assert error.message == f"image {index}: why"
        house.dispatcher.on_event(0, encoded(house.owners.sent[by_number["b/0"]][1], b""))
        house.check_idle()

    run(work())


def test_a_flight_that_lands_after_its_like_takes_what_is_there() -> None:
    async def work() -> None:
        house = House()
        first = ask(house, "a", "red")
        await house.until_sent(1)
        house.land(0)
        await first
        kept = house.store.find(b"red")
        assert kept is not None
        room = Room(0, payload=lease(house, 0), embeddings=lease(house, 0))
        flight = Flight(pictures("red")[0], room, house.store, lambda _: None)
        flight.join()

        flight.start(result_of(house.owners.sent[0][1]))

        assert await flight.landing is kept
        assert kept.num_pins == 2
        assert (flight.leave(), flight.leave()) == (kept, kept)
        for _ in range(2):
            house.store.unpin(kept)
        house.check_idle()

    run(work())


def test_nobody_can_join_a_flight_that_its_last_passenger_has_left() -> None:
    async def work() -> None:
        house = House()
        forgotten: list[Flight] = []
        room = Room(0, payload=lease(house, 0), embeddings=lease(house, 0))
        flight = Flight(pictures("red")[0], room, house.store, forgotten.append)
        flight.start(never())
        assert flight.leave() is None
        assert forgotten == [flight]  # at once, and not when the flight has ended
        await asyncio.wait([flight.landing])
        house.check_idle()

    run(work())


def lease(house: House, owner: int) -> Lease[Arena]:
    region = house.store.take(owner, UNIT)
    assert region is not None
    return Lease(house.owners.arenas[owner], region)


async def never() -> Encoded:
    await asyncio.Event().wait()
    raise AssertionError


async def result_of(job: EncodeJob) -> Encoded:
    return encoded(job, b"red")


def named(content: str) -> list[Picture]:
    """The picture of this content as its name alone brings it."""
    (picture,) = pictures(content)
    source = replace(picture.source, data=b"")
    return [replace(picture, source=source, header=None)]


def test_a_name_alone_brings_what_is_kept_or_asks_for_the_image() -> None:
    async def work() -> None:
        house = House()
        with pytest.raises(ImageRejected, match="send the image") as caught:
            await Caller(house, "a", named("red")).run()
        assert caught.value.code == "image_not_kept"
        first = ask(house, "b", "red")
        await house.until_sent(1)
        joined = asyncio.create_task(Caller(house, "c", named("red")).run())
        await asyncio.sleep(0)
        house.land(0)
        assert (
            await first == await joined == await Caller(house, "d", named("red")).run() == ["red"]
        )
        house.check_idle()

    run(work())


def test_a_name_beside_its_image_does_not_hide_it() -> None:
    async def work() -> None:
        house = House()
        task = asyncio.create_task(Caller(house, "a", named("red") + pictures("red")).run())
        await house.until_sent(1)
        house.land(0)
        assert await task == ["red", "red"]
        house.check_idle()

    run(work())


def test_a_name_that_lost_its_image_while_it_waited_is_refused() -> None:
    async def work() -> None:
        house = House(num_units=4)
        first = ask(house, "a", "red")
        await house.until_sent(1)
        house.land(0)
        await first
        busy = ask(house, "b", "green", "blue")  # takes all there is, red's place included
        waiting = asyncio.create_task(Caller(house, "c", named("red") + pictures("grey")).run())
        await house.until_sent(3)
        house.land(1, 2)
        assert await busy == ["green", "blue"]
        with pytest.raises(ImageRejected, match="send the image"):
            await waiting
        house.check_idle()

    run(work())


def test_an_owner_that_died_fails_the_flight_and_the_next_request_starts_anew() -> None:
    async def work() -> None:
        house = House()
        lost = ask(house, "a", "red")
        await house.until_sent(1)
        house.fail(0, "lost")
        with pytest.raises(WorkerLost):
            await lost
        again = ask(house, "b", "red")
        await house.until_sent(2)
        house.land(1)
        assert await again == ["red"]
        house.check_idle()

    run(work())


def test_what_the_owner_cannot_read_is_sent_again_as_pixels() -> None:
    async def work() -> None:
        house = House()
        task = ask(house, "a", "red")
        sent = await house.until_sent(1)
        house.fail(0, "undecoded")
        await house.until_sent(2)
        stages = [job.payload.stage for _, job in sent if isinstance(job.payload, Pixels)]
        assert stages == ["source", "resized"]
        house.land(1)
        assert await task == ["red"]
        house.check_idle()

    run(work())
