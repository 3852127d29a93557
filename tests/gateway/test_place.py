import random

from gateway.place import Candidate, ImageTask, cost, place
from tests.plans import make_plan
from workers.families.plan import ImagePlan


def plan(rows: int, columns: int) -> ImagePlan:
    return make_plan(
        (rows * 14, columns * 14), grid=(1, rows, columns), num_tokens=rows * columns // 4
    )


def workers(*loads: float) -> tuple[Candidate, ...]:
    return tuple(Candidate(index, f"worker-{index}", load) for index, load in enumerate(loads))


def tasks(count: int, seed: int = 0) -> tuple[ImageTask, ...]:
    source = random.Random(seed)
    sizes = [(2 * source.randint(1, 40), 2 * source.randint(1, 40)) for _ in range(count)]
    return tuple(
        ImageTask(index, plan(*size), source.randbytes(16)) for index, size in enumerate(sizes)
    )


def test_every_image_has_exactly_one_owner_among_the_candidates() -> None:
    placement = place(tasks(31), workers(0, 0, 0), workers(0))
    assert sorted(placement.owners) == list(range(31))
    assert set(placement.owners.values()) == {0, 1, 2}


def test_no_owner_exceeds_the_mean_by_more_than_the_slack_and_one_image() -> None:
    for seed in range(50):
        some = tasks(24, seed)
        placement = place(some, workers(0, 0, 0, 0), workers(0))
        loads = dict.fromkeys(range(4), 0.0)
        for task in some:
            loads[placement.owners[task.index]] += cost(task.plan)
        mean = sum(loads.values()) / 4
        largest = max(cost(task.plan) for task in some)
        assert max(loads.values()) <= 1.25 * mean + largest


def test_a_repeated_image_meets_the_same_owner_while_loads_are_even() -> None:
    def owner(task: ImageTask, load: float) -> int:
        alone = ImageTask(0, task.plan, task.digest)
        return place((alone,), workers(load, load, load), workers(0)).owners[0]

    images = tasks(30, seed=7)
    first = [owner(image, load=1e6) for image in images]
    assert first == [owner(image, load=2e6) for image in images]
    assert set(first) == {0, 1, 2}


def test_a_loaded_owner_is_avoided() -> None:
    placement = place(tasks(6), workers(1e9, 0), workers(0))
    assert set(placement.owners.values()) == {1}


def test_the_prompt_goes_to_the_least_loaded_engine() -> None:
    assert place((), (), workers(2, 1, 1)).engine == 1


def test_cost_grows_faster_than_patches() -> None:
    assert cost(plan(128, 128)) > 16 * cost(plan(32, 32)) * 1.5
