"""Evaluation uses wordings that training cannot write."""

import re
from random import Random

import pytest

from ops.demo_model.chatter import chat
from ops.demo_model.tables import load
from ops.demo_model.wordings import choose, decorate, fill, write


def _plain(text: str) -> str:
    """Letters, digits and slots only: case, spaces and punctuation do not make a wording new."""
    return re.sub(r"[^a-z0-9<>]", "", text.lower())


def _as_regex(pattern: str) -> str:
    kept = re.sub(r"[^a-z0-9<>|\[\]]", "", pattern.lower())
    return kept.replace("[", "(?:").replace("]", ")")


def _can_write(ask: str, text: str) -> bool:
    """Whether training could ask this, with any lead-in and any closing word."""
    before, after = (
        "|".join(["", *map(_plain, load("around")[side])]) for side in ("before", "after")
    )
    return any(
        re.fullmatch(f"(?:{before})(?:{_as_regex(pattern)})(?:{after})", _plain(text))
        for pattern in load("training")[ask]
    )


@pytest.mark.parametrize("ask", sorted(load("training")))
def test_held_out_wordings_are_not_in_training(ask: str) -> None:
    kept = (*load("watched").get(ask, ()), *load("final").get(ask, ()))
    assert [text for text in kept if _can_write(ask, text)] == []


def test_a_training_wording_would_be_noticed() -> None:
    assert _can_write("count", "Hi! how many <things> are there in this photo? Thanks.")
    assert _can_write("shape", "What shape does the <adjective> one have")


@pytest.mark.parametrize("ask", sorted(load("training")))
def test_the_check_recognises_whatever_training_writes(ask: str) -> None:
    slots = {name: f"<{name}>" for name in ("thing", "things", "a thing", "adjective", "nth image")}
    for seed in range(30):
        text = choose(Random(seed), Random(seed).choice(load("training")[ask]))
        assert _can_write(ask, fill(text.replace("<Thing>", "<thing>"), slots))


@pytest.mark.slow
def test_held_out_chat_is_not_in_training() -> None:
    random = Random(0)
    trained = {_plain(chat(random)) for _ in range(30_000)}
    kept = (*load("watched")["chat"], *load("final")["chat"])
    assert [text for text in kept if _plain(text) in trained] == []


def test_the_two_held_out_lists_share_nothing() -> None:
    watched, final = (
        {_plain(text) for texts in wordings.values() for text in texts}
        for wordings in (load("watched"), load("final"))
    )
    assert not watched & final


def test_every_question_has_held_out_wordings() -> None:
    asks = set(load("training")) - {"count_bare", "presence_lone"} | {"chat"}
    assert set(load("watched")) == asks
    assert set(load("final")) == asks


def test_choose_takes_inner_choices_first() -> None:
    pattern = "[What|Which] [color|[dark |]tone] is it?"
    written = {choose(Random(seed), pattern) for seed in range(200)}
    tones = ("color", "dark tone", "tone")
    assert written == {f"{word} {tone} is it?" for word in ("What", "Which") for tone in tones}


def test_slots_take_a_capital_where_the_pattern_has_one() -> None:
    assert fill("<Thing> of the <thing>", {"thing": "red star"}) == "Red star of the red star"


def test_no_slot_stays_open() -> None:
    slots = {
        "thing": "star",
        "things": "stars",
        "a thing": "a star",
        "adjective": "red",
        "nth image": "image 2",
    }
    for ask in load("training"):
        for seed in range(50):
            assert not set("<>[]|") & set(write(Random(seed), ask, slots))


def test_small_talk_leaves_no_slot_open() -> None:
    texts = [chat(Random(seed)) for seed in range(4000)]
    assert [text for text in texts if set("<>[]|") & set(text)] == []


@pytest.mark.parametrize(
    ("first", "second"), [("image 1", "photo 2"), ("the 1st one", "the 2nd one")]
)
def test_another_name_for_an_image_keeps_its_place(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Prose put before a question may hold "in the latter case" itself.
    monkeypatch.setattr("ops.demo_model.wordings.sentences", lambda: ("So it goes.",))
    seen = {
        name: {
            write(Random(seed), "number_nth", {"nth image": name}).lower() for seed in range(300)
        }
        for name in (first, second)
    }
    assert any("the former" in text for text in seen[first])
    assert any("the latter" in text for text in seen[second])
    assert not [text for text in seen[first] if "the latter" in text]
    assert not [text for text in seen[second] if "the former" in text]


def test_decoration_keeps_digits_in_order() -> None:
    texts = [decorate(Random(seed), "Which image has the number 42?") for seed in range(400)]
    assert all("42" in text for text in texts)
