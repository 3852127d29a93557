"""Engines are told of every pool they need before any job, and of no other; deaths are heard of."""

import asyncio
import random

import pytest

from config.workers import parse_workers
from workers.messages import DropPool, FeaturePool, MapPool, PoolMapped, Ready
from workers.ranges import Allocator
from workers.sharing import Sharing

WORKERS = "cpu:vision+language,cpu:vision,cpu:language"
ENGINES, OWNERS = (0, 2), (0, 1)


class Fleet:
    """Workers that map what they are told to, without processes."""

    def __init__(self) -> None:
        self.told: list[tuple[int, MapPool | DropPool]] = []
        places = [Allocator(index, 1 << 10) for index in range(3)]
        self.sharing = Sharing(places, parse_workers(WORKERS), self.tell)
        self.mapped: dict[int, set[int]] = {}  # by engines that live: the pools they have
        self.pools: dict[int, int] = {}  # by owners that live
        self.num_pools = 0

    def tell(self, worker: int, message: MapPool | DropPool) -> None:
        self.told.append((worker, message))
        mapped = self.mapped[worker]  # only those that live are told
        if isinstance(message, MapPool):
            assert message.pool.number not in mapped
            mapped.add(message.pool.number)
        else:
            mapped.remove(message.number)

    def ready(self, worker: int) -> None:
        pool = None
        if worker in OWNERS:
            self.num_pools += 1
            self.pools[worker] = self.num_pools
            pool = FeaturePool(number=self.num_pools, num_bytes=1 << 12, handle=b"handle")
        if worker in ENGINES:
            self.mapped[worker] = set()
        event = Ready(
            embedding_bytes_per_token=0,
            max_context_tokens=0,
            kv_cache_tokens=0,
            load_seconds=0,
            feature_pool=pool,
        )
        self.sharing.hear(worker, event)

    def lose(self, worker: int) -> None:
        self.pools.pop(worker, None)
        self.mapped.pop(worker, None)
        self.sharing.lose(worker)

    def check(self) -> None:
        for engine, mapped in self.mapped.items():
            others = {number for owner, number in self.pools.items() if owner != engine}
            assert mapped == others
        for owner in OWNERS:
            place = self.sharing.places[owner]
            if owner in self.pools:
                assert (place.pool, place.is_closed) == (self.pools[owner], False)
            else:
                assert place.is_closed or place.pool == 0


@pytest.mark.parametrize("seed", range(5))
def test_every_engine_has_just_the_pools_of_the_others_that_live(seed: int) -> None:
    fleet, chance = Fleet(), random.Random(seed)
    living: set[int] = set()
    for _ in range(300):
        worker = chance.randrange(3)
        if worker in living:
            fleet.lose(worker)
        else:
            fleet.ready(worker)
        living ^= {worker}
        fleet.check()
    assert fleet.num_pools > 50


def test_a_place_is_new_after_each_death_and_what_lay_in_the_old_can_be_freed() -> None:
    fleet = Fleet()
    fleet.ready(1)
    place = fleet.sharing.places[1]
    region = place.allocate(100)
    assert region is not None
    fleet.lose(1)
    assert place.allocate(1) is None
    fleet.ready(1)
    assert fleet.sharing.places[1].allocate(1) is not None
    place.free(region)
    place.check()
    assert fleet.sharing.places[0].pool == 0  # an owner that has not started yet


def test_waiting_ends_when_each_engine_has_answered_or_died() -> None:
    async def scenario() -> None:
        fleet = Fleet()
        for worker in (1, 0, 2):
            fleet.ready(worker)
        answers = [
            (engine, message.pool.number)
            for engine, message in fleet.told
            if isinstance(message, MapPool)
        ]
        assert len(answers) == 3  # the pool of worker 1 twice, that of worker 0 once
        waiting = asyncio.create_task(fleet.sharing.wait_answered())
        for engine, number in answers:
            await asyncio.sleep(0)
            assert not waiting.done()
            if engine == 0:
                fleet.sharing.hear(engine, PoolMapped(number=number, failure=""))
        fleet.lose(2)
        assert await asyncio.wait_for(waiting, 1) == ""

    asyncio.run(scenario())


def test_the_first_failure_is_told_with_the_engine_and_the_way_out() -> None:
    async def scenario() -> None:
        fleet = Fleet()
        fleet.ready(1)
        fleet.ready(2)
        fleet.sharing.hear(2, PoolMapped(number=1, failure="cannot map it"))
        failure = await asyncio.wait_for(fleet.sharing.wait_answered(), 1)
        assert failure == "worker-2 cannot map it. FOVEA_FEATURE_TRANSPORT=cpu does without"

    asyncio.run(scenario())
