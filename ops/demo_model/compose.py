"""Draw scenes from chance, each so that every question about it has one right answer."""

import math
from dataclasses import replace
from random import Random

from ops.demo_model.scenes import (
    COLOURS,
    SHAPES,
    Kind,
    Number,
    Paper,
    Rgb,
    Scene,
    Thing,
    in_reading_order,
    is_held_out_size,
)

PAPERS: tuple[Rgb, ...] = (
    *((255, 255, 255),) * 5,
    *((211, 211, 211), (224, 224, 224), (235, 240, 255), (255, 240, 235)),
    *((238, 250, 238), (255, 250, 225), (244, 236, 250), (225, 242, 247)),
)
MIN_SIDE, MAX_SIDE = 84, 400  # pixels, of a picture as sent


def sample_size(random: Random, held_out: bool = False) -> tuple[int, int]:
    """Width and height in pixels, every aspect from 1:1 to about 1:4."""
    while True:
        low, high = math.log(MIN_SIDE), math.log(MAX_SIDE)
        width = round(math.exp(random.uniform(low, high)))
        spread = 0.3 if random.random() < 0.6 else 1.6
        height = round(width * math.exp(random.uniform(-spread, spread)))
        if MIN_SIDE <= height <= MAX_SIDE and is_held_out_size(width, height) == held_out:
            return width, height


def sample_scene(random: Random, size: tuple[int, int], kind: Kind) -> Scene:
    """A scene of one kind; every question about it has one right answer."""
    paper = _sample_paper(random)
    scene = Scene(
        width=size[0],
        height=size[1],
        kind=kind,
        paper=paper,
        things=(),
        number=None,
        scale=2 if random.random() < 0.5 else 1,
        jpeg_quality=random.randint(40, 95) if random.random() < 0.35 else None,
    )
    if kind == "number":
        return replace(scene, number=_sample_number(random, scene))
    if kind == "one":
        return replace(scene, things=(_sample_lone_thing(random, scene),))
    if kind == "two":
        return replace(scene, things=_sample_two(random, scene))
    if kind == "many":
        return replace(scene, things=_sample_many(random, scene, random.choice((3, 4, 4))))
    return scene


def change_one_detail(random: Random, scene: Scene) -> Scene:
    """The same picture with one colour, shape or digit changed."""
    if scene.number is not None:
        return replace(scene, number=_change_digit(random, scene.number))
    if not scene.things:
        return replace(scene, things=(_sample_lone_thing(random, scene),), kind="one")
    index = random.randrange(len(scene.things))
    old = scene.things[index]
    if random.random() < 0.5:
        colour, rgb = _sample_colour(random, scene.paper, avoid=old.colour)
        new = replace(old, colour=colour, rgb=rgb)
    else:
        new = replace(old, shape=random.choice([s for s in SHAPES if s != old.shape]))
    return replace(scene, things=(*scene.things[:index], new, *scene.things[index + 1 :]))


def _change_digit(random: Random, number: Number) -> Number:
    index = random.randrange(len(number.digits))
    digit = random.choice([d for d in "123456789" if d != number.digits[index]])
    return replace(number, digits=number.digits[:index] + digit + number.digits[index + 1 :])


def _sample_paper(random: Random) -> Paper:
    rgb = random.choice(PAPERS)
    shift = random.randint(-14, 14) if random.random() < 0.25 else 0
    return Paper(
        rgb=rgb,
        far_rgb=_shifted(rgb, (shift, shift, shift)),
        is_vertical=random.random() < 0.5,
        grain=random.uniform(1.0, 5.0) if random.random() < 0.15 else 0.0,
        seed=random.randrange(1 << 30),
    )


def _shifted(rgb: Rgb, shift: Rgb) -> Rgb:
    red, green, blue = (max(0, min(255, a + b)) for a, b in zip(rgb, shift, strict=True))
    return red, green, blue


def _sample_colour(random: Random, paper: Paper, avoid: str = "") -> tuple[str, Rgb]:
    """A colour name and a tone that stands out from the paper."""
    while True:
        name = random.choice(list(COLOURS))
        pure, centre = COLOURS[name]
        jitter = (random.randint(-14, 14), random.randint(-14, 14), random.randint(-14, 14))
        rgb = pure if random.random() < 0.4 else _shifted(centre, jitter)
        distance = min(
            sum(abs(a - b) for a, b in zip(rgb, tone, strict=True))
            for tone in (paper.rgb, paper.far_rgb)
        )
        if name != avoid and distance > 95:
            return name, rgb


def _unit(scene: Scene) -> float:
    """The length, in pixels, that radii and glyph heights are shares of."""
    return math.sqrt(scene.width * scene.height)


def _make_thing(random: Random, scene: Scene, spot: tuple[float, float, float]) -> Thing:
    colour, rgb = _sample_colour(random, scene.paper)
    x, y, radius = spot
    turn = random.uniform(-0.1, 0.1)
    return Thing(random.choice(SHAPES), colour, rgb, x, y, radius, turn)


def _sample_lone_thing(random: Random, scene: Scene) -> Thing:
    radius = _unit(scene) * random.uniform(0.115, 0.29)
    radius = min(radius, 0.285 * min(scene.width, scene.height))
    row, column = divmod(random.randrange(9), 3)
    x = _inside_third(random, column, scene.width, radius)
    y = _inside_third(random, row, scene.height, radius)
    return _make_thing(random, scene, (x, y, radius))


def _inside_third(random: Random, third: int, length: int, radius: float) -> float:
    low, high = ((0.06, 0.295), (0.39, 0.61), (0.705, 0.94))[third]
    return random.uniform(max(low * length, radius), min(high * length, length - radius))


def _sample_two(random: Random, scene: Scene) -> tuple[Thing, ...]:
    while True:
        things = _scatter(random, scene, 2, 0.24)
        if things and _has_clear_order(scene, *things):
            break
    first, second = things
    chance = random.random()
    if chance < 0.8 and first.shape == second.shape:
        other = random.choice([s for s in SHAPES if s != first.shape])
        second = replace(second, shape=other)
    if chance < 0.8 and first.colour == second.colour:
        colour, rgb = _sample_colour(random, scene.paper, avoid=first.colour)
        second = replace(second, colour=colour, rgb=rgb)
    if 0.8 < chance < 0.9:
        second = replace(second, shape=first.shape)
    if chance > 0.9:
        second = replace(second, colour=first.colour, rgb=first.rgb)
    return in_reading_order((first, second), scene)


def _sample_many(random: Random, scene: Scene, num_things: int) -> tuple[Thing, ...]:
    while True:
        things = _scatter(random, scene, num_things, 0.2 if num_things == 3 else 0.175)
        if things:
            break
    if random.random() < 0.4:  # equal shapes, so that counting one shape is worth asking
        shape = things[0].shape
        things = tuple(replace(t, shape=shape) if random.random() < 0.5 else t for t in things)
    return in_reading_order(things, scene)


def with_equals(random: Random, scene: Scene) -> Scene:
    """The scene with some things in the colour or shape of one of them, to practise counting."""
    model = random.choice(scene.things)
    colour = {"colour": model.colour, "rgb": model.rgb}
    changes = random.choice((colour, {"shape": model.shape}))
    things = tuple(
        replace(thing, **changes) if random.random() < 0.5 else thing for thing in scene.things
    )
    return replace(scene, things=things)


def _scatter(
    random: Random, scene: Scene, num_things: int, largest: float
) -> tuple[Thing, ...] | None:
    """Things that do not touch, or None when chance left no room for one."""
    things: list[Thing] = []
    cap = 0.4 * min(scene.width, scene.height)
    for _ in range(40 * num_things):
        radius = min(cap, _unit(scene) * random.uniform(0.11, largest))
        x = random.uniform(radius, scene.width - radius)
        y = random.uniform(radius, scene.height - radius)
        if all(math.hypot(x - t.x, y - t.y) > 1.12 * (radius + t.radius) + 3 for t in things):
            things.append(_make_thing(random, scene, (x, y, radius)))
        if len(things) == num_things:
            return tuple(things)
    return None


def _has_clear_order(scene: Scene, first: Thing, second: Thing) -> bool:
    """Whether nobody could name the two in the other order, near the change of rule too."""
    across = (first.x - second.x) / scene.width
    down = (first.y - second.y) / scene.height
    aspect = scene.height / scene.width
    if aspect < 1.2:
        return abs(across) > 0.1
    if aspect > 1.9:
        return abs(down) > 0.1
    return abs(across) > 0.1 and abs(down) > 0.1 and across * down > 0


def _sample_number(random: Random, scene: Scene) -> Number:
    is_single = random.random() < 0.45
    digits = random.choice("0123456789") if is_single else str(random.randint(10, 99))
    colour, rgb = _sample_colour(random, scene.paper)
    share = random.uniform(0.36, 0.8) if is_single else random.uniform(0.32, 0.6)
    stretch = random.uniform(0.85, 1.2)
    height = min(_unit(scene) * share, 0.86 * scene.height)
    # A digit is about 0.8 of its height wide; lean and turn need some room beside it.
    widest = 0.92 * scene.width / (len(digits) * 0.85 * stretch + 0.2)
    height = min(height, widest)
    half_width = 0.5 * height * (len(digits) * 0.85 * stretch + 0.2)
    half_height = 0.54 * height
    is_centred = random.random() < 0.3
    slack_x, slack_y = scene.width / 2 - half_width, scene.height / 2 - half_height
    return Number(
        digits=digits,
        colour=colour,
        rgb=rgb,
        x=scene.width / 2 + (0 if is_centred else random.uniform(-1, 1) * max(0, slack_x)),
        y=scene.height / 2 + (0 if is_centred else random.uniform(-1, 1) * max(0, slack_y)),
        height=height,
        stretch=stretch,
        lean=random.uniform(-12, 12) if random.random() < 0.3 else 0.0,
        turn=random.uniform(-7, 7) if random.random() < 0.3 else 0.0,
        stroke=random.choice((0, 0, 0, 1, 2, 3)),
    )
