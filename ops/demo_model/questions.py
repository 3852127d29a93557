"""Ask about scenes: which questions make sense, and the one right answer to each."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from ops.demo_model.compose import change_one_detail, sample_scene
from ops.demo_model.scenes import COLOURS, SHAPES, Kind, Scene, Thing, region_of

CAPABILITY = (
    "Hello! I am a tiny demo model. I can name coloured shapes, say where they are, "
    "count up to four, compare two images, and read one or two digits."
)
NO_IMAGE = "I see no image. Please send one."
ONE_IMAGE = "I see only one image. Please send two."
ORDINALS = ("first", "second")


@dataclass(frozen=True, slots=True)
class Question:
    """A question before it has words: `ask` names the patterns, `slots` fills them."""

    skill: str
    ask: str
    slots: Mapping[str, str]
    answer: str


def with_article(phrase: str) -> str:
    """`a star`, `an orange star`."""
    return f"{'an' if phrase[0] in 'aeiou' else 'a'} {phrase}"


def contents(scene: Scene) -> str:
    """What the picture shows, as a phrase that follows "shows"."""
    if scene.number is not None:
        return f"the number {scene.number.digits}"
    if not scene.things:
        return "no object"
    if len(scene.things) > 2:
        return f"{len(scene.things)} objects"
    return " and ".join(with_article(thing.name) for thing in scene.things)


def about_one(random: Random, scene: Scene) -> list[Question]:
    """Every kind of question about a single image, most with several subjects."""
    questions = [Question("describe", "describe", {}, f"The image shows {contents(scene)}.")]
    questions += _about_presence(random, scene)
    questions += _about_absent(random, scene)
    questions += _about_count(random, scene)
    if scene.number is not None:
        return [*questions, *_about_number(random, scene)]
    if len(scene.things) == 1:
        questions += _about_lone_thing(random, scene)
    return [*questions, *_about_named_things(random, scene)]


def needing_two(random: Random) -> Question:
    """A question about two images, for a request that has only one."""
    thing = f"{random.choice(list(COLOURS))} {random.choice(SHAPES)}"
    thing = random.choice((thing, thing.split()[1]))
    ask = random.choice(("which", "which", "same", "compare", "compare", "describe_nth"))
    slots = {"thing": thing, "nth image": _nth(random, 1)}
    return Question("one_image", ask, slots, ONE_IMAGE)


def _about_lone_thing(random: Random, scene: Scene) -> Iterator[Question]:
    thing = scene.things[0]
    word = random.choice(("object", "shape", "thing", "figure", thing.shape, thing.shape))
    yield Question("colour", "colour", {"thing": word}, thing.colour)
    yield Question("colour", "colour_lone", {}, thing.colour)
    yield Question("shape", "shape_lone", {}, thing.shape)
    yield Question("shape", "shape_lone", {}, thing.shape)
    yield from _where(scene, thing, random.choice(("object", "shape", "thing", "figure")))


def _where(scene: Scene, thing: Thing, word: str) -> Iterator[Question]:
    region = region_of(thing.x, thing.y, scene.width, scene.height)
    if region is not None:
        yield Question("position", "position", {"thing": word}, region)


def _about_named_things(random: Random, scene: Scene) -> Iterator[Question]:
    """Colour by shape, shape by colour and place, wherever the words name one thing."""
    shapes = [thing.shape for thing in scene.things]
    colours = [thing.colour for thing in scene.things]
    names = [thing.name for thing in scene.things]
    for thing in scene.things:
        is_only_shape = shapes.count(thing.shape) == 1
        if is_only_shape:
            yield Question("colour", "colour", {"thing": thing.shape}, thing.colour)
        if colours.count(thing.colour) == 1:
            yield Question("shape", "shape", {"adjective": thing.colour}, thing.shape)
            yield from _where(scene, thing, f"{thing.colour} {random.choice(('object', 'one'))}")
        if names.count(thing.name) == 1:
            short = is_only_shape and random.random() < 0.5
            yield from _where(scene, thing, thing.shape if short else thing.name)


def _about_number(random: Random, scene: Scene) -> Iterator[Question]:
    number = scene.number
    assert number is not None
    for _ in range(3):
        yield Question("number", "number", {}, number.digits)
    word = random.choice(("number", "number", "digit" if len(number.digits) == 1 else "digits"))
    if word != "digits":
        yield Question("colour", "colour", {"thing": word}, number.colour)
    region = region_of(number.x, number.y, scene.width, scene.height)
    if region is not None:
        yield Question("position", "position", {"thing": "number"}, region)


def _about_count(random: Random, scene: Scene) -> Iterator[Question]:
    things = scene.things
    if scene.number is None:
        plural = random.choice(("objects", "objects", "shapes", "shapes", "things", "figures"))
        yield Question("count", "count", {"things": plural}, str(len(things)))
        yield Question("count", "count_bare", {}, str(len(things)))
    shapes = [thing.shape for thing in things]
    for shape in sorted({*shapes, random.choice(SHAPES)}):
        num_equal = shapes.count(shape)
        yield Question("count_kind", "count", {"things": f"{shape}s"}, str(num_equal))
    if scene.number is not None:  # whether a digit counts as a red thing is nobody's business
        return
    colour = random.choice([thing.colour for thing in things] or list(COLOURS))
    noun = random.choice(("objects", "shapes", "things", *(f"{shape}s" for shape in shapes[:1])))
    num_equal = sum(
        thing.colour == colour and noun in ("objects", "shapes", "things", f"{thing.shape}s")
        for thing in things
    )
    yield Question("count_kind", "count", {"things": f"{colour} {noun}"}, str(num_equal))


def _words_for(thing: Thing) -> tuple[str, ...]:
    return (thing.shape, thing.name, thing.name, f"{thing.colour} object")


def present_words(scene: Scene) -> tuple[str, ...]:
    """Words for things that the picture shows."""
    if scene.number is not None:
        return ("number", f"number {scene.number.digits}")
    return tuple(word for thing in scene.things for word in _words_for(thing))


def absent_words(random: Random, scene: Scene) -> tuple[str, ...]:
    """Words for things that the picture does not show, most of them near misses."""
    shapes = [thing.shape for thing in scene.things]
    colours = _colours_of(scene)
    names = {thing.name for thing in scene.things}
    other_shapes = [shape for shape in SHAPES if shape not in shapes]
    other_colours = [colour for colour in COLOURS if colour not in colours]
    mixed = [f"{random.choice(colours or other_colours)} {random.choice(shapes or SHAPES)}"]
    mixed += [f"{random.choice(colours or other_colours)} {random.choice(SHAPES)}"]
    mixed += [f"{random.choice(list(COLOURS))} {random.choice(shapes or SHAPES)}"]
    words = [random.choice(other_shapes)] if other_shapes else []
    words += [f"{random.choice(other_colours)} object"]
    words += [name for name in mixed if name not in names]
    words.append("number" if scene.number is None else f"number {_other_digits(random, scene)}")
    return tuple(words)


def _colours_of(scene: Scene) -> list[str]:
    colours = [thing.colour for thing in scene.things]
    return colours if scene.number is None else [scene.number.colour]


def _other_digits(random: Random, scene: Scene) -> str:
    assert scene.number is not None
    digits = scene.number.digits
    changed = [str(int(digits) + step) for step in (1, 2, 3, 10, 20, -1, -2, -3, -10, -20)]
    return random.choice([text for text in changed if len(text) == len(digits) and text != "0"])


def _about_presence(random: Random, scene: Scene) -> Iterator[Question]:
    present, absent = present_words(scene), absent_words(random, scene)
    for words, answer in ((present, "yes"), (absent, "no"), (present, "yes"), (absent, "no")):
        if not words:
            continue
        word = random.choice(words)
        slots = {"thing": word, "a thing": _indefinite(word)}
        yield Question("yes_no", "presence", slots, answer)
        if len(scene.things) == 1 and "number" not in word:
            yield Question("yes_no", "presence_lone", slots, answer)


def _indefinite(word: str) -> str:
    """`a red star`, but `the number 42`."""
    return f"the {word}" if word[-1].isdigit() else with_article(word)


def _about_absent(random: Random, scene: Scene) -> Iterator[Question]:
    words = absent_words(random, scene)
    for ask in random.sample(("colour", "position", "position"), k=2):
        word = random.choice(words)
        yield Question("absent", ask, {"thing": word}, f"There is no {word}.")
    seen = _colours_of(scene)
    colour = random.choice([colour for colour in COLOURS if colour not in seen])
    if scene.number is None:
        yield Question("absent", "number", {}, "There is no number.")
        yield Question("absent", "shape", {"adjective": colour}, f"There is no {colour} object.")
    if not scene.things:
        yield Question("absent", "shape_lone", {}, "There is no shape.")
    if not scene.things and scene.number is None:
        yield Question("absent", "colour_lone", {}, "There is no object.")


def about_two(random: Random, scenes: Sequence[Scene], is_same: bool) -> list[Question]:
    """Questions about two images: which has what, are they the same, what is in each."""
    questions = [Question("compare", "compare", {}, comparison(scenes, is_same))]
    answer = "yes" if is_same else "no"
    questions += [Question("same", "same", {}, answer)] * 2
    questions += _which(random, scenes)
    for index in (0, 1):
        questions += _about_nth(random, scenes[index], index)
    return questions


def comparison(scenes: Sequence[Scene], is_same: bool) -> str:
    """One sentence for equal images, one sentence for each image otherwise."""
    if is_same:
        return f"Both images show {contents(scenes[0])}."
    return " ".join(_shows(scene, index) for index, scene in enumerate(scenes))


def _shows(scene: Scene, index: int) -> str:
    return f"The {ORDINALS[index]} image shows {contents(scene)}."


def _which(random: Random, scenes: Sequence[Scene]) -> Iterator[Question]:
    words = [set(present_words(scene)) for scene in scenes]
    answers = dict.fromkeys(words[0] - words[1], f"the {ORDINALS[0]} image")
    answers |= dict.fromkeys(words[1] - words[0], f"the {ORDINALS[1]} image")
    for word in random.sample(sorted(answers), k=min(4, len(answers))):
        yield Question("which", "which", {"thing": word}, answers[word])
    shared = sorted(words[0] & words[1])
    if shared:
        yield Question("which", "which", {"thing": random.choice(shared)}, "both images")
    nowhere = set(absent_words(random, scenes[0])) - words[0] - words[1]
    if nowhere:
        word = random.choice(sorted(nowhere))
        yield Question("absent", "which", {"thing": word}, f"There is no {word}.")


def _about_nth(random: Random, scene: Scene, index: int) -> Iterator[Question]:
    slots = {"nth image": _nth(random, index)}
    yield Question("describe_nth", "describe_nth", slots, _shows(scene, index))
    for words, answer in (
        (present_words(scene), "yes"),
        (absent_words(random, scene), "no"),
    ):
        if words:
            word = random.choice(words)
            named = {**slots, "thing": word, "a thing": _indefinite(word)}
            yield Question("yes_no_nth", "presence_nth", named, answer)
    if scene.number is not None:
        yield Question("detail_nth", "number_nth", slots, scene.number.digits)
        yield Question("absent", "shape_nth", slots, "There is no shape.")
    elif len(scene.things) == 1:
        yield Question("detail_nth", "colour_nth", slots, scene.things[0].colour)
        yield Question("detail_nth", "shape_nth", slots, scene.things[0].shape)
        yield Question("absent", "number_nth", slots, "There is no number.")


def _nth(random: Random, index: int) -> str:
    word = random.choice(("image", "image", "image", "picture", "photo"))
    ordinal = ORDINALS[index]
    return random.choice(
        (f"the {ordinal} {word}", f"the {ordinal} {word}", f"the {ordinal} one",
         f"{word} {index + 1}", f"{word} number {index + 1}", f"the {('1st', '2nd')[index]} {word}")
    )  # fmt: skip


def sample_pair(
    random: Random, sizes: tuple[tuple[int, int], tuple[int, int]]
) -> tuple[Scene, Scene, bool]:
    """Two scenes and whether they show the same: equal, one detail apart, or unrelated."""
    kinds: tuple[Kind, ...] = ("one", "one", "one", "one", "two", "number", "number")
    first = sample_scene(random, sizes[0], random.choice(kinds))
    chance = random.random()
    if chance < 0.34:
        # The file may differ (JPEG or not); what it shows does not.
        quality = first.jpeg_quality if random.random() < 0.7 else 80
        return first, replace(first, jpeg_quality=quality), True
    if chance < 0.66:
        return first, change_one_detail(random, first), False
    while True:
        second = sample_scene(random, sizes[1], random.choice(kinds))
        if contents(second) != contents(first):
            return first, second, False
