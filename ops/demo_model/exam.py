"""Set an exam: per skill, fresh pictures in unseen sizes, with questions in unseen wordings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random

from ops.demo_model import questions
from ops.demo_model.compose import sample_scene, sample_size
from ops.demo_model.questions import CAPABILITY, NO_IMAGE, Question, about_one, about_two
from ops.demo_model.render import to_file
from ops.demo_model.scenes import Kind, Scene
from ops.demo_model.tables import Table
from ops.demo_model.wordings import capitalised, choose, fill

KINDS: Mapping[str, tuple[Kind, ...]] = {  # pictures that a skill is examined on
    "colour": ("one", "one", "two", "many"),
    "shape": ("one", "one", "two", "many"),
    "position": ("one", "one", "two", "many"),
    "count": ("one", "two", "many", "many", "empty"),
    "count_kind": ("two", "many", "many", "many"),
    "yes_no": ("one", "two", "many", "number"),
    "describe": ("one", "two", "two", "number", "many"),
    "number": ("number",),
    "absent": ("one", "two", "many", "number", "empty"),
    "one_image": ("one", "two", "number"),
}
PAIR_SKILLS = ("describe_nth", "detail_nth", "yes_no_nth", "which", "same", "compare")
SKILLS = (*KINDS, *PAIR_SKILLS, "chat", "no_image")
SYSTEM_PROMPTS = (
    "You are a careful assistant.",
    "Reply to the user.",
    "You know how to look at images.",
)
GREETING = "Hello"


@dataclass(frozen=True, slots=True)
class Turn:
    """Something said; a user's parts are texts and encoded images in their order."""

    role: str
    parts: tuple[str | bytes, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """One question of the exam."""

    skill: str
    wording: str
    turns: tuple[Turn, ...]
    answer: str


def set_exam(skill: str, wordings: Table, num_items: int, seed: int) -> Iterator[Item]:
    """Items of a skill; the same seed gives the same items."""
    for index in range(num_items):
        yield _item(Random(f"exam:{seed}:{skill}:{index}"), skill, wordings)


def _item(random: Random, skill: str, wordings: Table) -> Item:
    if skill == "chat":
        images = _one_scene(random, KINDS["yes_no"])[:1] if random.random() < 0.5 else ()
        wording = random.choice(wordings["chat"])
        return _arrange(random, Question(skill, "", {}, CAPABILITY), wording, images)
    if skill == "no_image":
        _, question = _ask_one(random, random.choice(("colour", "position", "count", "describe")))
        question = Question(skill, question.ask, question.slots, NO_IMAGE)
        return _arrange(random, question, _word(random, question, wordings), ())
    scenes, question = (_ask_two if skill in PAIR_SKILLS else _ask_one)(random, skill)
    return _arrange(random, question, _word(random, question, wordings), scenes)


def _ask_one(random: Random, skill: str) -> tuple[tuple[Scene, ...], Question]:
    while True:
        scenes = _one_scene(random, KINDS[skill])
        if skill == "one_image":
            return scenes, questions.needing_two(random)
        asked = [q for q in about_one(random, scenes[0]) if q.skill == skill]
        asked = [q for q in asked if q.ask not in ("count_bare", "presence_lone")]
        if asked:
            return scenes, random.choice(asked)


def _one_scene(random: Random, kinds: tuple[Kind, ...]) -> tuple[Scene, ...]:
    scene = sample_scene(random, sample_size(random, held_out=True), random.choice(kinds))
    quality = random.randint(40, 95) if random.random() < 0.5 else None
    return (replace(scene, jpeg_quality=quality),)


def _ask_two(random: Random, skill: str) -> tuple[tuple[Scene, ...], Question]:
    while True:
        sizes = sample_size(random, held_out=True), sample_size(random, held_out=True)
        first, second, is_same = questions.sample_pair(random, sizes)
        asked = [q for q in about_two(random, (first, second), is_same) if q.skill == skill]
        if asked:
            return (first, second), random.choice(asked)


def _word(random: Random, question: Question, wordings: Table) -> str:
    return capitalised(fill(choose(random, random.choice(wordings[question.ask])), question.slots))


def _arrange(random: Random, question: Question, wording: str, scenes: tuple[Scene, ...]) -> Item:
    """Put images before the words, or after them; now and then a system prompt or a greeting."""
    files = tuple(to_file(scene) for scene in scenes)
    parts: tuple[str | bytes, ...]
    parts = (wording, *files) if random.random() < 0.3 else (*files, wording)
    turns = [Turn("user", parts)]
    chance = random.random()
    if chance < 0.15:
        turns.insert(0, Turn("system", (random.choice(SYSTEM_PROMPTS),)))
    elif chance < 0.3:
        turns[:0] = [Turn("user", (GREETING,)), Turn("assistant", (CAPABILITY,))]
    return Item(question.skill, wording, tuple(turns), question.answer)
