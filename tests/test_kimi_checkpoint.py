"""The random Kimi checkpoint looks at its images, so equal answers mean that pixels were equal."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

from tests.kimi_checkpoint import make_kimi_checkpoint

pytestmark = pytest.mark.slow

COLOURS = ("red", "navy", "white", "green")
NUM_TOKENS = 12


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kimi_checkpoint(tmp_path_factory.mktemp("sight"))


def answers(checkpoint: Path, change: Callable[[Any], None] = lambda _: None) -> list[list[int]]:
    """Greedy answers about plain pictures that differ in nothing but their colour."""
    processor = transformers.AutoProcessor.from_pretrained(checkpoint)
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint).eval()
    change(model)
    found = []
    for colour in COLOURS:
        picture = {"type": "image", "image": Image.new("RGB", (70, 90), colour)}
        content = [picture, {"type": "text", "text": "What is it?"}]
        inputs = processor.apply_chat_template(
            [{"role": "user", "content": content}],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        output = model.generate(**inputs, max_new_tokens=NUM_TOKENS, do_sample=False)
        found.append(output[0, inputs["input_ids"].shape[1] :].tolist())
    return found


def most_equal_tokens(found: list[list[int]]) -> int:
    return max(sum(map(int.__eq__, one, other)) for one, other in itertools.combinations(found, 2))


def test_plain_pictures_of_other_colours_have_other_answers(checkpoint: Path) -> None:
    assert most_equal_tokens(answers(checkpoint)) <= NUM_TOKENS // 4


def test_a_model_that_sees_nothing_says_the_same_about_all(checkpoint: Path) -> None:
    def blind(model: Any) -> None:
        torch.nn.init.zeros_(model.model.mm_projector.out_proj.weight)

    assert most_equal_tokens(answers(checkpoint, blind)) == NUM_TOKENS
