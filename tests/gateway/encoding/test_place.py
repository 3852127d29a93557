import random
import time
from collections.abc import Sequence

from gateway.encoding.place import Candidate, ImageTask, choose_engine, cost, place
from tests.plans import make_plan
from workers.families.plan import ImagePlan


def plan(rows: int, columns: int) -> ImagePlan:
    return make_plan(
        (rows * 14, columns * 14), grid=(1, rows, columns), num_tokens=rows * columns // 4
    )


def workers(*loads: float) -> tuple[Candidate, ...]:
    return tuple(Candidate(index, f"worker-{index}", load) for index, load in enumerate(loads))


def tasks(count: int, seed: int = 0, longest: int = 40) -> tuple[ImageTask, ...]:
    """Images that all differ, with indices that have gaps and are in no order."""
    source = random.Random(seed)
    indices = source.sample(range(3 * count), count)
    return tuple(
        ImageTask(
            index,
            plan(2 * source.randint(1, longest), 2 * source.randint(1, longest)),
            source.randbytes(16),
        )
        for index in indices
    )


def owners_of(some: Sequence[ImageTask], owners: Sequence[Candidate]) -> dict[int, int]:
    return place(tuple(some), tuple(owners))


def owner_alone(task: ImageTask, owners: Sequence[Candidate]) -> int:
    return owners_of([task], owners)[task.index]


def highest(owner_of: dict[int, int], some: Sequence[ImageTask], loads: Sequence[float]) -> float:
    """Load of the fullest owner that got an image."""
    filled = list(loads)
    for task in some:
        filled[owner_of[task.index]] += cost(task.plan)
    return max(filled[owner] for owner in owner_of.values())


def lower_bound(some: Sequence[ImageTask], loads: Sequence[float]) -> float:
    """What no split stays below: the largest image, and an even split over the emptiest owners."""
    costs = [cost(task.plan) for task in some]
    emptiest = sorted(loads)
    even = min(
        (sum(emptiest[:count]) + sum(costs)) / count for count in range(1, len(emptiest) + 1)
    )
    return max(even, emptiest[0] + max(costs))


def greedy(some: Sequence[ImageTask], loads: Sequence[float]) -> float:
    filled = list(loads)
    used = set()
    for work in sorted((cost(task.plan) for task in some), reverse=True):
        owner = min(range(len(filled)), key=filled.__getitem__)
        filled[owner] += work
        used.add(owner)
    return max(filled[owner] for owner in used)


def random_loads(source: random.Random, count: int) -> list[float]:
    return [source.choice([0.0, 0.0, source.uniform(0, 20000)]) for _ in range(count)]


def test_every_image_has_exactly_one_owner_among_the_candidates() -> None:
    some = tasks(31)
    owner_of = owners_of(some, workers(0, 0, 0))
    assert owner_of.keys() == {task.index for task in some}
    assert set(owner_of.values()) == {0, 1, 2}


def test_an_owner_goes_with_the_image_and_not_with_its_place_or_index() -> None:
    for seed in range(30):
        source = random.Random(seed)
        some = tasks(source.randint(1, 40), seed)
        owners = workers(*random_loads(source, source.randint(1, 9)))
        expected = {task.digest: owners_of(some, owners)[task.index] for task in some}
        shuffled = source.sample(some, len(some))
        renamed = [ImageTask(at, task.plan, task.digest) for at, task in enumerate(shuffled)]
        found = owners_of(renamed, source.sample(owners, len(owners)))
        assert {task.digest: found[task.index] for task in renamed} == expected


def test_equal_images_share_an_owner_and_are_counted_once() -> None:
    first, second, third = tasks(3, seed=4)
    again = [ImageTask(100 + at, first.plan, first.digest) for at in range(20)]
    owner_of = owners_of([first, second, third, *again], workers(0, 0, 0))
    assert {owner_of[task.index] for task in again} == {owner_of[first.index]}
    without = owners_of([first, second, third], workers(0, 0, 0))
    assert {index: owner_of[index] for index in without} == without


def test_the_last_image_ends_near_the_bound_or_no_later_than_under_greedy() -> None:
    for seed in range(150):
        source = random.Random(seed)
        some = tasks(source.randint(1, 64), seed, longest=source.choice([4, 40, 90]))
        loads = random_loads(source, source.randint(1, 16))
        ours = highest(owners_of(some, workers(*loads)), some, loads)
        assert ours <= max(1.1 * lower_bound(some, loads), greedy(some, loads)) + 1e-6


def test_many_images_of_like_size_always_end_within_a_tenth_of_the_mean() -> None:
    for seed in range(50):
        some = tasks(64, seed)
        ours = highest(owners_of(some, workers(*[0] * 8)), some, [0] * 8)
        assert ours <= 1.1 * sum(cost(task.plan) for task in some) / 8


def test_images_that_greedy_would_end_late_are_packed() -> None:
    sizes = [(24, 10), (24, 10), (16, 10), (16, 10), (16, 10)]
    some = [ImageTask(at, plan(*size), bytes([at] * 16)) for at, size in enumerate(sizes)]
    assert greedy(some, [0, 0]) > 1.15 * lower_bound(some, [0, 0])
    ours = highest(owners_of(some, workers(0, 0)), some, [0, 0])
    assert ours < 1.01 * lower_bound(some, [0, 0])


def test_a_repeated_image_meets_the_same_owner_while_loads_are_even() -> None:
    images = tasks(30, seed=7)
    first = [owner_alone(image, workers(1e6, 1e6, 1e6)) for image in images]
    assert first == [owner_alone(image, workers(2e6, 2e6, 2e6)) for image in images]
    assert set(first) == {0, 1, 2}


def test_images_spread_evenly_by_identity() -> None:
    owners = workers(*[1e9] * 4)
    chosen = [owner_alone(image, owners) for image in tasks(800, seed=9)]
    assert all(160 <= chosen.count(owner) <= 240 for owner in range(4))


def test_a_lost_owner_moves_only_its_own_images() -> None:
    owners = workers(*[1e9] * 5)
    images = tasks(100, seed=3)
    for lost in range(5):
        left = [owner for owner in owners if owner.index != lost]
        for image in images:
            before, after = owner_alone(image, owners), owner_alone(image, left)
            assert after == before or before == lost


def test_a_loaded_owner_is_avoided() -> None:
    assert set(owners_of(tasks(6), workers(1e9, 0)).values()) == {1}


def test_one_far_too_full_owner_does_not_unbalance_the_others() -> None:
    some, loads = tasks(40, seed=5), [1e9, 0.0, 0.0]
    owner_of = owners_of(some, workers(*loads))
    assert highest(owner_of, some, loads) <= 1.1 * sum(cost(task.plan) for task in some) / 2


def test_a_large_request_is_placed_in_well_under_five_milliseconds() -> None:
    some, owners = tasks(64, seed=6), workers(*[0] * 64)
    seconds = []
    for _ in range(10):
        started_at = time.perf_counter()
        owners_of(some, owners)
        seconds.append(time.perf_counter() - started_at)
    assert min(seconds) < 0.0025


def test_the_prompt_goes_to_the_least_loaded_engine() -> None:
    assert choose_engine(workers(2, 1, 1), None) == 1
    assert choose_engine(workers(2, 1, 1), 7) == 1  # which is not there


def test_an_engine_that_knows_the_prompt_answers_unless_it_is_much_busier() -> None:
    assert choose_engine(workers(3, 0, 0), 0) == 0
    assert choose_engine(workers(4, 0, 0), 0) == 1
    assert choose_engine(workers(100, 70, 70), 0) == 0
    assert choose_engine(workers(120, 70, 70), 0) == 1


def test_cost_grows_faster_than_patches() -> None:
    assert cost(plan(128, 128)) > 16 * cost(plan(32, 32)) * 1.5
