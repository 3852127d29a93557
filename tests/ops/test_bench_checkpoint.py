"""The checkpoint for load tests: loads with transformers, sees, and never stops by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from ops.bench.make_checkpoint import make_checkpoint

pytestmark = pytest.mark.slow

NUM_NEW_TOKENS = 48


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    assert 9e6 < make_checkpoint(folder) < 10e6
    return folder


def prompt(processor: Any, colour: str, size: tuple[int, int]) -> Any:
    image = Image.new("RGB", size, colour)
    content = [{"type": "image", "image": image}, {"type": "text", "text": "Describe it."}]
    return processor.apply_chat_template(
        [{"role": "user", "content": content}],
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )


def test_answers_depend_on_the_image_and_run_to_their_limit_in_plain_text(folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32)
    answers = []
    for colour, size in (("red", (84, 112)), ("navy", (140, 56))):
        inputs = prompt(processor, colour, size)
        ids = model.generate(**inputs, max_new_tokens=NUM_NEW_TOKENS, do_sample=False)
        answers.append(ids[0, inputs["input_ids"].shape[1] :].tolist())
    assert [len(answer) for answer in answers] == [NUM_NEW_TOKENS] * 2
    assert answers[0] != answers[1]
    text = processor.tokenizer.decode(answers[0] + answers[1], skip_special_tokens=False)
    assert all(character in "\n\t" or " " <= character <= "~" for character in text)
    assert "<|" not in text


def test_a_large_image_is_cut_to_the_pixel_limit(folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    inputs = prompt(processor, "green", (1536, 1024))
    assert inputs["image_grid_thw"].tolist() == [[1, 52, 78]]


def test_text_survives_the_tokenizer(folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    text = "def parse(self, x):\n\treturn é + 1  # 日本 12345\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
