"""The simulation of placement: its sizes, its bounds, and what it says of simple cases."""

import random
import subprocess
import sys

import pytest

from gateway.encoding.place import Candidate, cost
from ops.bench.placement.bounds import lower_bound, pigeonhole_bound
from ops.bench.placement.burst import Burst, compare, draw_requests, missed
from ops.bench.placement.exact import can_split
from ops.bench.placement.mixes import GEOMETRIES, MIXES, draw_sizes, kimi_plan, qwen_plan
from ops.bench.placement.policies import POLICIES, greedy_by_load, greedy_by_patches
from ops.bench.placement.stream import Stream, simulate


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((1, 1), (1, 2, 2)),
        ((480, 640), (1, 36, 46)),
        ((3024, 4032), (1, 112, 148)),
        ((100, 10000), (1, 6, 512)),
        ((7083, 489), (1, 496, 36)),
    ],
)
def test_kimi_sizes_are_those_of_the_published_examples(
    size: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    plan = kimi_plan(size)
    assert plan.grid == grid
    assert plan.num_tokens == grid[1] * grid[2] // 4


def test_a_photo_is_not_shrunk_for_qwen() -> None:
    assert qwen_plan((3024, 4032)).num_patches == 216 * 288


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_size_that_is_drawn_can_be_planned(mix: str, geometry: str) -> None:
    sizes = draw_sizes(mix, 40, random.Random(1))
    assert len({GEOMETRIES[geometry](size).grid for size in sizes}) > 3


def test_bounds_of_equal_images() -> None:
    assert lower_bound([1.0] * 9, 8) == 1.125
    assert pigeonhole_bound([1.0] * 9, 8) == 2
    assert pigeonhole_bound([1.0] * 17, 8) == 3
    assert pigeonhole_bound([5.0, 1.0], 8) == 5


def test_a_split_is_found_where_there_is_one() -> None:
    assert can_split([3, 3, 2, 2, 2], 2, 6)
    assert can_split([3, 3, 2, 2, 2], 2, 5.9) is False
    assert can_split([1.0] * 9, 8, 1.9) is False
    assert can_split([1.0] * 9, 8, 2)


def fits_by_trying(costs: list[float], loads: list[float], limit: float) -> bool:
    """Every image on every owner."""
    if not costs:
        return max(loads) <= limit
    return any(
        fits_by_trying(costs[1:], [*loads[:at], load + costs[0], *loads[at + 1 :]], limit)
        for at, load in enumerate(loads)
    )


@pytest.mark.parametrize("seed", range(40))
def test_the_search_agrees_with_trying_all(seed: int) -> None:
    chance = random.Random(seed)
    costs = [float(chance.randint(1, 20)) for _ in range(chance.randint(1, 7))]
    num_owners = chance.randint(1, 4)
    for share in (1, 1.05, 1.2):
        limit = share * lower_bound(costs, num_owners)
        expected = fits_by_trying(costs, [0.0] * num_owners, limit + 1e-6)
        assert can_split(costs, num_owners, limit) is expected


def test_a_request_that_no_simple_bound_decides_is_decided() -> None:
    """Of the bar's own; without memory the search gave up on it."""
    requests = list(draw_requests(Burst("kimi_k25", "documents", 32, 8, True), 100, seed=1))
    costs = [cost(task.plan) for task in requests[38]]
    limit = 1.1 * lower_bound(costs, 8)
    assert pigeonhole_bound(costs, 8) <= limit
    assert can_split(costs, 8, limit) is False


def test_requests_that_end_late_are_told_apart() -> None:
    found = missed(Burst("kimi_k25", "documents", 16, 8, is_divisible=True), 10, seed=1)
    assert found["no split is"] > found["one exists and is missed"] == 0
    assert found.total() == sum(
        1
        for _ in draw_requests(Burst("kimi_k25", "documents", 16, 8, is_divisible=True), 10, seed=1)
    )


def test_greedy_by_patches_does_not_see_earlier_requests_and_greedy_by_load_does() -> None:
    tasks = next(draw_requests(Burst("kimi_k25", "documents", 3, 2, False), 1, seed=2))
    owners = (Candidate(0, "a", 1e9), Candidate(1, "b", 0.0))
    assert set(greedy_by_patches(tasks, owners).values()) == {0, 1}
    assert set(greedy_by_load(tasks, owners).values()) == {1}


def test_large_requests_are_balanced_by_ours_and_not_by_turns() -> None:
    found = compare(Burst("kimi_k25", "chat", 64, 8, is_divisible=True), 3, seed=1)
    assert found["ours"].num_requests == 3
    assert found["ours"].highest <= 1.1
    assert found["round robin"].num_over_limit == 3


def stream(num_owners: int, *, is_holder_known: bool) -> Stream:
    return Stream(
        "kimi_k25", "chat", num_owners, 0.5, is_holder_known, num_requests=300, num_pictures=100
    )


def test_with_one_owner_the_policy_does_not_matter() -> None:
    found = {simulate(stream(1, is_holder_known=False), make(), 1) for make in POLICIES.values()}
    assert len(found) == 1


def test_repeats_are_found_by_affinity_or_by_knowing_the_holder() -> None:
    def hit_rate(policy: str, *, is_holder_known: bool) -> float:
        outcome = simulate(stream(4, is_holder_known=is_holder_known), POLICIES[policy](), 1)
        return outcome.hit_rate

    perfect = hit_rate("perfect affinity", is_holder_known=False)
    assert hit_rate("round robin", is_holder_known=False) < perfect - 0.1
    assert hit_rate("round robin", is_holder_known=True) > perfect - 0.03
    assert hit_rate("ours", is_holder_known=True) > perfect - 0.03


@pytest.mark.slow
def test_the_command_prints_its_tables() -> None:
    command = [sys.executable, "-m", "ops.bench.placement", "burst", "time"]
    options = ["--owners", "2", "--requests", "2"]
    printed = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    assert "| kimi_k25 | photos | 64 | 2 | 2 |" in printed.stdout
    assert "64 images, 64 owners:" in printed.stdout
