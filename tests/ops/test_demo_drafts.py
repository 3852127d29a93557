"""A batch asks alike before the images and after them, and spends few tokens on fixed answers."""

from collections import Counter
from random import Random

import pytest
from tokenizers import Tokenizer

from ops.demo_model import drafts
from ops.demo_model.drafts import FIXED_ANSWERS, OPENING_TOKENS, POLISH, WARM, Draft, Mix, mix_at
from ops.demo_model.questions import Question
from ops.demo_model.rows import Branch, Vocabulary

NUM_ROWS = 240


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary(Tokenizer.from_file("workers/demo_model/tokenizer.json"))


def _asked_by_order(
    vocabulary: Vocabulary, mix: Mix, monkeypatch: pytest.MonkeyPatch
) -> tuple[Counter[str], Counter[str]]:
    """How often each skill was asked with the words before the images, and with them after."""
    first: Counter[str] = Counter()
    after: Counter[str] = Counter()
    before_images, after_images = Draft._ask_before_images, Draft._ask_after_images

    def note_before(self: Draft, *arguments: object) -> None:
        first.update(a.skill for a in arguments if isinstance(a, Question))
        before_images(self, *arguments)  # type: ignore[arg-type]

    def note_after(self: Draft, *arguments: object) -> None:
        after.update(a.skill for a in arguments if isinstance(a, Question))
        after_images(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(drafts, "render", lambda scene: None)
    monkeypatch.setattr(Draft, "_ask_before_images", note_before)
    monkeypatch.setattr(Draft, "_ask_after_images", note_after)
    for seed in range(NUM_ROWS):
        Draft(Random(seed), vocabulary).add_image_row(mix)
    return first, after


@pytest.mark.slow
@pytest.mark.parametrize("mix", [WARM, POLISH], ids=["warm", "polish"])
def test_small_talk_is_not_told_by_words_that_come_first(
    vocabulary: Vocabulary, mix: Mix, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, after = _asked_by_order(vocabulary, mix, monkeypatch)
    assert first["chat"] / first.total() < 0.3
    assert after["chat"] / after.total() > 0.05


def test_openings_tell_the_fixed_answers_apart(vocabulary: Vocabulary) -> None:
    openings = {tuple(vocabulary.encode(text)[:OPENING_TOKENS]) for text in FIXED_ANSWERS}
    assert len(openings) == len(FIXED_ANSWERS)


@pytest.mark.parametrize("num_tokens", [None, 3])
def test_an_answer_is_learned_whole_or_up_to_a_token(
    vocabulary: Vocabulary, num_tokens: int | None
) -> None:
    draft = Draft(Random(1), vocabulary)
    branch: Branch = draft.begin_row().branch(sees_images=False)
    branch.say("Hello there")
    branch.answer("I see no image.", 1.0, num_tokens)
    ids = [*vocabulary.encode("I see no image."), *vocabulary.end]
    row = draft.rows[0]
    learned = [i for i, weight in zip(row.ids, row.weights, strict=True) if weight > 0]
    assert learned == ids[:num_tokens]


def test_a_polish_asks_for_other_things_than_a_warm_start() -> None:
    assert {id(mix_at(0.5, True, step, is_polish=True)) for step in range(1, 10)} == {id(POLISH)}
    assert mix_at(0.5, True, 1) is WARM
