"""What a scene says is what its pixels show."""

import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from ops.demo_model.compose import (
    change_one_detail,
    sample_scene,
    sample_size,
    with_equals,
)
from ops.demo_model.labels import (
    CENTRE,
    COLOUR,
    COUNT,
    DIGIT,
    SHAPE,
    UNASKED,
    label,
    label_patches,
    rank,
)
from ops.demo_model.render import draw, number_mask, render, to_file
from ops.demo_model.scenes import (
    COLOURS,
    REGIONS,
    SHAPES,
    Kind,
    Scene,
    Thing,
    in_reading_order,
    is_held_out_size,
    region_of,
)

# Whether a shape of radius 1 covers a point: degrees clockwise from up, distance from the centre.
POINTS = ((45, 1.08), (36, 0.49), (180, 0.7))
COVERED = {
    "circle": (False, True, True),
    "square": (True, True, True),
    "triangle": (False, True, False),
    "star": (False, False, False),
}


def scenes(kind: Kind, num_scenes: int = 40) -> Iterator[Scene]:
    for seed in range(num_scenes):
        random = Random(f"{kind}{seed}")
        scene = sample_scene(random, sample_size(random), kind)
        yield replace(scene, paper=replace(scene.paper, grain=0.0, far_rgb=scene.paper.rgb))


@pytest.mark.parametrize("kind", ["one", "two", "many"])
def test_each_thing_has_its_colour_and_its_shape(kind: Kind) -> None:
    for scene in scenes(kind):
        pixels = np.asarray(draw(replace(scene, scale=1)))
        for thing in scene.things:
            assert tuple(pixels[int(thing.y), int(thing.x)]) == thing.rgb
            if thing.radius < 24:  # too few pixels to tell an edge
                continue
            covered = tuple(_shows(pixels, thing, *point) for point in POINTS)
            assert covered == COVERED[thing.shape], thing


def _shows(pixels: NDArray[np.uint8], thing: Thing, degrees: float, distance: float) -> bool:
    angle = thing.angle + math.radians(degrees)
    x = round(thing.x + distance * thing.radius * math.sin(angle))
    y = round(thing.y - distance * thing.radius * math.cos(angle))
    if not (0 <= y < pixels.shape[0] and 0 <= x < pixels.shape[1]):
        return thing.shape == "square"  # a corner may stick out of the picture
    return tuple(pixels[y, x]) == thing.rgb


@pytest.mark.parametrize("kind", ["two", "many"])
def test_things_lie_apart_and_inside(kind: Kind) -> None:
    for scene in scenes(kind):
        for index, thing in enumerate(scene.things):
            assert thing.radius <= thing.x <= scene.width - thing.radius
            assert thing.radius <= thing.y <= scene.height - thing.radius
            for other in scene.things[:index]:
                gap = math.hypot(thing.x - other.x, thing.y - other.y)
                assert gap > thing.radius + other.radius


def test_two_things_are_in_reading_order_under_both_rules_near_the_change() -> None:
    for scene in scenes("two"):
        first, second = scene.things
        assert in_reading_order((second, first), scene) == (first, second)
        if 1.2 < scene.height / scene.width < 1.9:
            assert first.x < second.x
            assert first.y < second.y


def test_lone_things_always_have_a_region_and_meet_all_nine() -> None:
    seen = set()
    for scene in scenes("one", 120):
        (thing,) = scene.things
        seen.add(region_of(thing.x, thing.y, scene.width, scene.height))
    assert seen - {None} == set(REGIONS)


def test_region_names_the_row_before_the_column() -> None:
    assert region_of(10, 90, 100, 100) == "bottom left"
    assert region_of(50, 50, 100, 100) == "centre"
    assert region_of(34, 50, 100, 100) is None


def test_digits_stay_inside_the_picture() -> None:
    for scene in scenes("number", 30):
        assert scene.number is not None
        mask = number_mask(scene.number)
        assert mask.width <= scene.width
        assert mask.height <= scene.height
        ink = np.asarray(draw(scene)).astype(int) != np.array(scene.paper.rgb)
        assert ink.any(-1).sum() >= 0.98 * (np.asarray(mask) > 128).sum()


def test_colours_stand_out_from_the_paper() -> None:
    for scene in scenes("one"):
        distance = sum(
            abs(a - b) for a, b in zip(scene.things[0].rgb, scene.paper.rgb, strict=True)
        )
        assert distance > 95


def test_training_never_draws_a_held_out_size() -> None:
    random = Random(3)
    assert not any(is_held_out_size(*sample_size(random)) for _ in range(500))
    assert all(is_held_out_size(*sample_size(random, held_out=True)) for _ in range(50))


def test_same_seed_gives_the_same_file() -> None:
    files = [to_file(sample_scene(Random(8), (131, 240), "many")) for _ in range(2)]
    assert files[0] == files[1]
    assert files[0] != to_file(sample_scene(Random(9), (131, 240), "many"))


def test_jpeg_is_part_of_the_picture() -> None:
    scene = replace(sample_scene(Random(2), (152, 99), "number"), jpeg_quality=40)
    assert to_file(scene).startswith(b"\xff\xd8")
    assert (np.asarray(render(scene)) != np.asarray(draw(scene))).any()


@pytest.mark.parametrize("kind", ["one", "two", "number"])
def test_changing_a_detail_changes_exactly_one(kind: Kind) -> None:
    for seed, scene in enumerate(scenes(kind, 20)):
        changed = change_one_detail(Random(seed), scene)
        before, after = _details(scene), _details(changed)
        assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def _details(scene: Scene) -> list[str]:
    if scene.number is not None:
        return list(scene.number.digits)
    return [word for thing in scene.things for word in (thing.colour, thing.shape)]


def test_labels_name_what_lies_in_the_cell() -> None:
    for scene in scenes("two"):
        cells = label(scene, 4, 6)
        assert (cells[COUNT] == 2).all()
        for thing in scene.things:
            row, column = int(thing.y * 4 / scene.height), int(thing.x * 6 / scene.width)
            assert cells[COLOUR, row, column] == 1 + list(COLOURS).index(thing.colour)
            assert cells[SHAPE, row, column] == 1 + SHAPES.index(thing.shape)
            assert cells[CENTRE, row, column] == 1


def test_ranks_count_the_things_alike_that_come_before() -> None:
    seen = set()
    for scene in scenes("many"):
        ranks = rank(scene, 16, 24)
        assert (ranks[0] != UNASKED).sum() == len(scene.things)
        for shape in {thing.shape for thing in scene.things}:
            places = sorted(
                (int(thing.y * 16 / scene.height), int(thing.x * 24 / scene.width))
                for thing in scene.things
                if thing.shape == shape
            )
            found = [int(ranks[0][place]) for place in places]
            assert found == list(range(len(places)))
            seen.update(found)
    assert seen == {0, 1, 2, 3}


def test_equals_take_the_colour_or_the_shape_of_one_thing() -> None:
    num_alike = {"colour": 0, "shape": 0}
    for seed, scene in enumerate(scenes("many")):
        changed = with_equals(Random(seed), scene)
        pairs = list(zip(scene.things, changed.things, strict=True))
        assert all((a.x, a.y, a.radius) == (b.x, b.y, b.radius) for a, b in pairs)
        colours = {b.colour for a, b in pairs if a.colour != b.colour}
        shapes = {b.shape for a, b in pairs if a.shape != b.shape}
        assert len(colours) + len(shapes) <= 1
        assert colours <= {thing.colour for thing in scene.things}
        assert shapes <= {thing.shape for thing in scene.things}
        num_alike["colour"] += len(colours)
        num_alike["shape"] += len(shapes)
    assert min(num_alike.values()) > 5


def test_labels_of_digits_run_left_to_right() -> None:
    for scene in scenes("number", 60):
        assert scene.number is not None
        found = label(scene, 16, 24)[DIGIT]
        columns = [np.nonzero(found == 1 + int(digit))[1].mean() for digit in scene.number.digits]
        assert columns == sorted(columns)


def test_patch_labels_follow_the_towers_order() -> None:
    scene = sample_scene(Random(4), (140, 170), "many")
    fine, patches = label(scene, 8, 10), label_patches(scene, 4, 5)
    # The second merged token of the first row: patches (0, 2), (0, 3), (1, 2), (1, 3).
    assert (patches[:, 4:8] == fine[:, (0, 0, 1, 1), (2, 3, 2, 3)]).all()
