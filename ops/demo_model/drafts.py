"""Write the rows of a batch: which questions, in which form of conversation."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

from ops.demo_model.chatter import chat
from ops.demo_model.compose import sample_scene, sample_size, with_equals
from ops.demo_model.questions import (
    CAPABILITY,
    NO_IMAGE,
    ONE_IMAGE,
    Question,
    about_one,
    about_two,
    needing_two,
    sample_pair,
)
from ops.demo_model.render import render
from ops.demo_model.rows import Branch, Picture, Row, Vocabulary
from ops.demo_model.scenes import COLOURS, SHAPES, Kind, Scene
from ops.demo_model.tables import load
from ops.demo_model.wordings import write

FACTOR = 32  # pixels a merged token is wide
MIN_PIXELS, MAX_PIXELS = 16384, 25600
WEIGHTS: Mapping[str, float] = {  # of a skill's answers in the loss; 1 unless named
    "which": 2.5, "same": 2.0, "compare": 2.0, "describe": 2.0, "describe_nth": 2.0, "count": 2.0,
    "count_kind": 2.0, "number": 2.2, "position": 1.5, "shape": 1.3, "chat": 2.4, "no_image": 2.6,
    "one_image": 2.4, "absent": 2.0, "detail_nth": 2.0, "yes_no_nth": 1.8,
}  # fmt: skip
SHARES: Mapping[str, float] = {  # how readily a skill's question is picked; 1 unless named
    "count": 1.2, "describe": 3.0, "number": 6.0, "which": 2.0, "same": 2.5, "compare": 4.0,
    "absent": 1.6, "yes_no": 0.7, "one_image": 7.0, "count_kind": 1.4, "shape": 2.4,
    "position": 1.6, "describe_nth": 2.3, "detail_nth": 2.4, "yes_no_nth": 2.0,
}  # fmt: skip
REPEATS: Mapping[str, int] = {  # wordings of one question about one picture; 1 unless named
    "describe": 3, "compare": 3, "describe_nth": 2, "number": 4,
}  # fmt: skip
CHAT = Question("chat", "", {}, CAPABILITY)
FIXED_ANSWERS = (CAPABILITY, NO_IMAGE, ONE_IMAGE)
OPENING_TOKENS = 5  # tell the fixed answers from each other and from all else


@dataclass(frozen=True, slots=True)
class Mix:
    """What a batch is made of."""

    kinds: Mapping[Kind, float]  # shares of one-image scenes
    pairs: float  # share of rows with two images
    num_rows: int
    num_text_rows: int
    num_row_tokens: int  # no question starts beyond this length of a row
    words_first: float = 0.3  # share of image rows with a question that comes before the images
    needing_two: float = 0.6  # share of one-image rows with questions about two images
    num_needing_two: int = 2
    openings: float = 0.0  # share of fixed answers of which only the opening is learned


WARM = Mix({"one": 0.19, "two": 0.22, "many": 0.34, "number": 0.22, "empty": 0.03}, 0.5, 12, 4, 260)
MANY = Mix({"many": 0.9, "two": 0.1}, 0.0, 27, 1, 90)
POLISH = Mix(  # for the wordings of digits, of what needs two images, and of small talk
    {"one": 0.17, "two": 0.14, "many": 0.15, "number": 0.51, "empty": 0.03},
    *(0.27, 12, 2, 260),
    words_first=0.75,
    needing_two=0.8,
    num_needing_two=6,
    openings=0.85,
)
EARLY = Mix({"one": 0.56, "two": 0.12, "many": 0.05, "number": 0.27}, 0.06, 20, 1, 130)
MIDDLE = Mix({"one": 0.3, "two": 0.3, "many": 0.15, "number": 0.25}, 0.2, 18, 1, 160)


def mix_at(progress: float, is_warm: bool, step: int, is_polish: bool = False) -> Mix:
    """The mix for a share of the schedule; from scratch, lone objects come first.

    Later every fourth batch has many pictures of three or four objects and few questions on each:
    to count a kind among others takes more pictures than all else. A polish has fewer of those.
    """
    if is_polish:
        return MANY if step % 10 == 0 else POLISH
    if is_warm or progress > 0.35:
        return MANY if step % 4 == 0 else WARM
    return EARLY if progress < 0.16 else MIDDLE


def more_counts(random: Random, scene: Scene) -> Iterator[Question]:
    """How many of every shape and colour there is, and of some name."""
    for shape in SHAPES:
        num_equal = sum(thing.shape == shape for thing in scene.things)
        yield Question("count_kind", "count", {"things": f"{shape}s"}, str(num_equal))
    colours = {thing.colour for thing in scene.things} | {random.choice(list(COLOURS))}
    for colour in sorted(colours):
        noun = random.choice(("objects", "shapes", "things"))
        num_equal = sum(thing.colour == colour for thing in scene.things)
        yield Question("count_kind", "count", {"things": f"{colour} {noun}"}, str(num_equal))
    for name in sorted({thing.name for thing in scene.things}):
        num_equal = sum(thing.name == name for thing in scene.things)
        yield Question("count_kind", "count", {"things": f"{name}s"}, str(num_equal))


@dataclass(slots=True)
class Draft:
    """The rows and pictures of one batch; owned by whoever makes the batch."""

    random: Random
    vocabulary: Vocabulary
    rows: list[Row] = field(default_factory=list)
    scenes: list[Scene] = field(default_factory=list)
    images: list[Image.Image] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    same_rows: dict[int, bool] = field(default_factory=dict)  # of rows with two images

    def add_picture(self, scene: Scene) -> Picture:
        """Render a scene and give it its index in the batch."""
        height, width = smart_resize(scene.height, scene.width, FACTOR, MIN_PIXELS, MAX_PIXELS)
        picture = Picture(len(self.pictures), height // FACTOR, width // FACTOR)
        self.scenes.append(scene)
        self.images.append(render(scene))
        self.pictures.append(picture)
        return picture

    def scene(self, mix: Mix) -> Scene:
        """A scene of a kind drawn from the mix."""
        (kind,) = self.random.choices(list(mix.kinds), list(mix.kinds.values()))
        return sample_scene(self.random, sample_size(self.random), kind)

    def begin_row(self) -> Row:
        """A new row, one in six with a system prompt."""
        prompt = (
            self.random.choice(load("around")["systems"]) if self.random.random() < 0.16 else None
        )
        row = Row(self.vocabulary)
        row.begin(prompt)
        self.rows.append(row)
        return row

    def add_image_row(self, mix: Mix) -> None:
        """One picture and questions about it."""
        scene = self.scene(mix)
        if scene.kind == "many" and self.random.random() < 0.5:
            scene = with_equals(self.random, scene)
        asked = about_one(self.random, scene)
        if scene.kind == "many":
            asked += more_counts(self.random, scene)
        if self.random.random() < mix.needing_two:
            asked += (needing_two(self.random) for _ in range(mix.num_needing_two))
        self._fill_row(mix, [self.add_picture(scene)], asked)

    def add_pair_row(self, mix: Mix) -> None:
        """Two pictures and questions about both."""
        sizes = sample_size(self.random), sample_size(self.random)
        first, second, is_same = sample_pair(self.random, sizes)
        pictures = [self.add_picture(first), self.add_picture(second)]
        self.same_rows[len(self.rows)] = is_same
        self._fill_row(mix, pictures, about_two(self.random, (first, second), is_same))

    def add_text_row(self, mix: Mix) -> None:
        """Chat, and questions about a picture that nobody sent."""
        row = self.begin_row()
        scene = self.scene(mix)
        while len(row.ids) < mix.num_row_tokens:
            branch = row.branch(sees_images=False)
            asked = [*about_one(self.random, scene), *(needing_two(self.random) for _ in range(3))]
            goes_on = self.random.random() < 0.15
            self._ask_without_image(branch, asked, 0.0 if goes_on else mix.openings)
            if goes_on:
                branch.next_turn()
                self._ask_without_image(branch, asked, mix.openings)

    def _fill_row(self, mix: Mix, pictures: Sequence[Picture], asked: list[Question]) -> None:
        random, row = self.random, self.begin_row()
        row.share_images(
            pictures, random.choice(load("around")["intros"]) if random.random() < 0.1 else ""
        )
        ordered = self._shuffle([q for q in asked for _ in range(REPEATS.get(q.skill, 1))])
        if random.random() < 0.8 * mix.num_row_tokens / WARM.num_row_tokens:
            # Among the first, not the first: that one may come before the images.
            ordered.insert(random.randrange(4), CHAT)
        if random.random() < mix.words_first:
            self._ask_before_images(row, pictures, ordered.pop(random.randrange(4)), mix)
        if random.random() < 0.1:
            self._ask_without_image(row.branch(sees_images=False), asked, mix.openings)
        for question in ordered:
            if len(row.ids) > mix.num_row_tokens:
                break
            self._ask_after_images(row, question, ordered, mix)

    def _shuffle(self, asked: list[Question]) -> list[Question]:
        """In random order, the readily picked ones more often in front."""
        return sorted(
            asked,
            key=lambda question: -(self.random.random() ** (1 / SHARES.get(question.skill, 1.0))),
        )

    def _ask_after_images(
        self, row: Row, question: Question, others: list[Question], mix: Mix
    ) -> None:
        branch = row.branch(sees_images=True)
        goes_on = self.random.random() < 0.12
        self._ask(branch, question, 0.0 if goes_on else mix.openings)
        if goes_on:
            branch.next_turn()
            self._ask(branch, self.random.choice([*others, CHAT]), mix.openings)

    def _ask_before_images(
        self, row: Row, pictures: Sequence[Picture], question: Question, mix: Mix
    ) -> None:
        """Words first, as many clients send it; sometimes after a turn of chat."""
        branch = row.branch(sees_images=False)
        if self.random.random() < 0.25:
            self._ask_without_image(branch, [question, needing_two(self.random)], 0.0)
            branch.next_turn()
            branch.show(pictures)
            self._ask(branch, question, mix.openings)
            return
        branch.say(self._words(question))
        branch.show(pictures)
        self._learn(branch, question, mix.openings)

    def _ask_without_image(
        self, branch: Branch, asked: Sequence[Question], openings: float
    ) -> None:
        if self.random.random() < 0.4:
            self._ask(branch, CHAT, openings)
            return
        ask = self.random.choice(sorted({question.ask for question in asked} - {CHAT.ask}))
        question = self.random.choice([question for question in asked if question.ask == ask])
        question = replace(question, skill="no_image", answer=NO_IMAGE)
        self._ask(branch, question, openings)

    def _ask(self, branch: Branch, question: Question, openings: float) -> None:
        branch.say(self._words(question))
        self._learn(branch, question, openings)

    def _learn(self, branch: Branch, question: Question, openings: float) -> None:
        """A fixed answer goes on by itself: its opening is enough, and leaves room for others."""
        is_short = question.answer in FIXED_ANSWERS and self.random.random() < openings
        branch.answer(
            question.answer,
            WEIGHTS.get(question.skill, 1.0),
            OPENING_TOKENS if is_short else None,
        )

    def _words(self, question: Question) -> str:
        if question.skill == "chat":
            return chat(self.random)
        return write(self.random, question.ask, question.slots)

    def image_tokens(self, is_object: NDArray[np.bool_]) -> tuple[NDArray[np.int64], ...]:
        """For each image token of the rows: its cell, its ordinal, whether image 1 is its twin.

        `is_object` says of every cell of the batch whether something lies there; only such cells
        of a second image are asked about a twin, the others get -100.
        """
        starts = np.cumsum([0, *(p.num_rows * p.num_columns for p in self.pictures)])
        order, ordinals, twins = [], [], []
        for index, row in enumerate(self.rows):
            for picture, ordinal in row.images:
                cells = np.arange(starts[picture], starts[picture + 1])
                is_asked = is_object[cells] & (ordinal == 1)
                order.append(cells)
                ordinals.append(np.full(len(cells), ordinal))
                twins.append(np.where(is_asked, int(self.same_rows.get(index, False)), -100))
        if not order:
            return (np.zeros(0, np.int64),) * 3
        return tuple(np.concatenate(parts).astype(np.int64) for parts in (order, ordinals, twins))
