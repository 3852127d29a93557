"""What callers write never becomes structure, in any family, role or form of content."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from config.settings import DEMO_MODEL
from gateway.prompts.checkpoint import Checkpoint, load_checkpoint
from gateway.prompts.text import build
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from tests.gateway.conversations import Message, images_of, picture, prompt_of

FORMS = ("string", "parts", "parts beside an image")


@pytest.fixture(scope="module", params=["demo", *ALL_MODEL_TYPES])
def checkpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    if request.param == "demo":
        return load_checkpoint(DEMO_MODEL)
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    return load_checkpoint(make_checkpoint(folder, request.param))


def spellings(checkpoint: Checkpoint) -> list[str]:
    found = [checkpoint.tokenizer.id_to_token(each) or "" for each in checkpoint.control.ids]
    assert len(found) > 5
    return sorted(found)


def conversation(form: str, system: str, user: str, assistant: str) -> list[Message]:
    """A caller's words in every role that a caller may write."""
    content: Any = user
    if form != "string":
        content = [{"type": "text", "text": user[:5]}, {"type": "text", "text": user[5:]}]
    if form == "parts beside an image":
        content.insert(1, {"type": "image", "image": picture(96, 123, 4)})
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": content},
        {"role": "assistant", "content": assistant},
        {"role": "user", "content": user},
    ]


def structure(checkpoint: Checkpoint, messages: list[Message]) -> tuple[list[int], int, str]:
    """The control tokens of a prompt, the number of its images, and all of it as text."""
    plans = [
        checkpoint.layout.plan((image.height, image.width), "cpu") for image in images_of(messages)
    ]
    tokens = build(prompt_of(messages), plans, checkpoint, 10**6)
    ids = np.frombuffer(tokens.token_ids, dtype="<i4").tolist()
    control = [token_id for token_id in ids if token_id in checkpoint.control.ids]
    text = checkpoint.tokenizer.decode(ids, skip_special_tokens=False)
    return control, len(tokens.image_starts), text


@pytest.mark.parametrize("form", FORMS)
def test_a_control_token_in_any_words_of_a_caller_is_letters(
    checkpoint: Checkpoint, form: str
) -> None:
    honest = structure(checkpoint, conversation(form, "Be brief.", "Hello there", "Yes."))
    for spelling in spellings(checkpoint):
        words = f"Say {spelling} now{spelling}"
        control, num_images, text = structure(
            checkpoint, conversation(form, f"s {words}", f"hello {words}", f"a {words}")
        )
        assert (control, num_images) == honest[:2], spelling
        assert text.count(spelling) - honest[2].count(spelling) >= 6


@pytest.mark.parametrize("form", FORMS)
def test_whole_turns_and_images_cannot_be_written(checkpoint: Checkpoint, form: str) -> None:
    """All that a template writes around an image, given back to it as a caller's words."""
    _, _, stolen = structure(
        checkpoint, conversation("parts beside an image", "Be brief.", "Hello there", "Yes.")
    )
    honest = structure(checkpoint, conversation(form, "Be brief.", "Hello there", "Yes."))
    forged = structure(checkpoint, conversation(form, stolen, stolen, stolen))
    assert forged[:2] == honest[:2]


def test_pieces_of_control_tokens_never_meet(checkpoint: Checkpoint) -> None:
    chance = random.Random(11)
    known = spellings(checkpoint)
    for form in FORMS:
        honest = structure(checkpoint, conversation(form, "Be brief.", "Hello there", "Yes."))
        for _ in range(20):
            system, user, assistant = (
                "x" + "".join(_piece(chance, chance.choice(known)) for _ in range(4)) + "x"
                for _ in range(3)
            )
            messages = conversation(form, system, user, assistant)
            assert structure(checkpoint, messages)[:2] == honest[:2], messages


def _piece(chance: random.Random, spelling: str) -> str:
    start, end = sorted(chance.choices(range(len(spelling) + 1), k=2))
    return spelling[start:end]
