"""Every question about a scene has the answer that the scene gives."""

from random import Random

import pytest

from ops.demo_model.compose import sample_scene, sample_size
from ops.demo_model.drafts import more_counts
from ops.demo_model.questions import (
    Question,
    about_one,
    about_two,
    absent_words,
    comparison,
    contents,
    present_words,
    sample_pair,
    with_article,
)
from ops.demo_model.scenes import Kind, Scene, region_of

KINDS: tuple[Kind, ...] = ("one", "two", "many", "number", "empty")


def _scenes(kind: Kind, num_scenes: int = 60) -> list[Scene]:
    randoms = [Random(f"{kind}:{seed}") for seed in range(num_scenes)]
    return [sample_scene(random, sample_size(random), kind) for random in randoms]


def _asked(kind: Kind) -> list[tuple[Scene, Question]]:
    return [
        (scene, question)
        for seed, scene in enumerate(_scenes(kind))
        for question in about_one(Random(seed), scene)
    ]


def _shown(scene: Scene) -> list[str]:
    """Everything the picture shows, as the shortest and the longest words for it."""
    if scene.number is not None:
        return ["number", f"number {scene.number.digits}"]
    return [
        word
        for thing in scene.things
        for word in (thing.shape, f"{thing.colour} {thing.shape}", f"{thing.colour} object")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_absent_things_are_absent_and_present_ones_present(kind: Kind) -> None:
    for seed, scene in enumerate(_scenes(kind)):
        shown = set(_shown(scene))
        assert set(present_words(scene)) <= shown
        assert not set(absent_words(Random(seed), scene)) & shown


@pytest.mark.parametrize("kind", KINDS)
def test_yes_and_no_follow_what_is_shown(kind: Kind) -> None:
    for scene, question in _asked(kind):
        if question.skill == "yes_no":
            is_shown = question.slots["thing"] in _shown(scene)
            assert question.answer == ("yes" if is_shown else "no")


@pytest.mark.parametrize("kind", ["one", "two", "many", "empty"])
def test_counts_count_what_the_words_cover(kind: Kind) -> None:
    more = [(scene, q) for scene in _scenes(kind) for q in more_counts(Random(1), scene)]
    for scene, question in [*_asked(kind), *more]:
        if question.ask != "count":
            continue
        *adjectives, noun = question.slots["things"].split()
        covered = [
            thing
            for thing in scene.things
            if thing.colour in (adjectives or [thing.colour])
            and (noun in ("objects", "shapes", "things", "figures") or noun == f"{thing.shape}s")
        ]
        assert question.answer == str(len(covered))


@pytest.mark.parametrize("kind", ["one", "two", "many"])
def test_words_that_ask_for_one_thing_name_one_thing(kind: Kind) -> None:
    for scene, question in _asked(kind):
        if question.skill not in ("colour", "shape", "position"):
            continue
        words = question.slots.get("thing", question.slots.get("adjective", "object")).split()
        named = [
            thing
            for thing in scene.things
            if all(
                word in (thing.colour, thing.shape, "object", "one", "shape", "thing", "figure")
                for word in words
            )
        ]
        assert len(named) == 1
        thing = named[0]
        region = region_of(thing.x, thing.y, scene.width, scene.height)
        answers = {"colour": thing.colour, "shape": thing.shape, "position": region}
        assert question.answer == answers[question.skill]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_there_is_said_not_to_be_there(kind: Kind) -> None:
    for scene, question in _asked(kind):
        if question.skill == "absent":
            word = question.answer.removeprefix("There is no ").removesuffix(".")
            assert word not in _shown(scene)
            assert question.ask in ("number", "shape_lone", "colour_lone") or any(
                value in word for value in question.slots.values()
            )


def test_contents_name_one_or_two_things_and_count_more() -> None:
    (one, two, many, number, empty) = (_scenes(kind, 1)[0] for kind in KINDS)
    assert contents(one) == with_article(one.things[0].name)
    assert contents(two) == " and ".join(with_article(thing.name) for thing in two.things)
    assert contents(many) == f"{len(many.things)} objects"
    assert number.number is not None
    assert contents(number) == f"the number {number.number.digits}"
    assert contents(empty) == "no object"


def test_which_image_is_the_one_that_shows_it() -> None:
    for seed in range(80):
        random = Random(seed)
        first, second, is_same = sample_pair(random, (sample_size(random), sample_size(random)))
        for question in about_two(random, (first, second), is_same):
            if question.skill != "which":
                continue
            holders = [question.slots["thing"] in _shown(scene) for scene in (first, second)]
            expected = {
                (True, False): "the first image",
                (False, True): "the second image",
                (True, True): "both images",
            }
            assert question.answer == expected[(holders[0], holders[1])]


def test_pairs_are_the_same_exactly_when_they_show_the_same() -> None:
    verdicts = set()
    for seed in range(120):
        random = Random(seed)
        first, second, is_same = sample_pair(random, (sample_size(random), sample_size(random)))
        assert is_same == (contents(first) == contents(second))
        assert ("Both" in comparison((first, second), is_same)) == is_same
        verdicts.add(is_same)
    assert verdicts == {True, False}


def test_questions_about_a_pair_name_the_right_image() -> None:
    random = Random(6)
    first, second, is_same = sample_pair(random, (sample_size(random), sample_size(random)))
    for question in about_two(random, (first, second), is_same):
        if question.skill != "describe_nth":
            continue
        is_second = any(word in question.slots["nth image"] for word in ("2", "second"))
        scene = second if is_second else first
        assert contents(scene) in question.answer
        assert ("second" in question.answer) == is_second
