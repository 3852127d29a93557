"""The checkpoint for load tests: loads with transformers, sees, and never stops by itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from ops.bench.make_checkpoint import make_checkpoint
from workers.families import load_layout

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


def test_the_end_of_a_turn_and_broken_characters_cannot_be_chosen(folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    rows = load_file(folder / "model.safetensors")["lm_head.weight"]
    silent = (rows == 0).all(dim=1)  # [tokens], bool
    assert silent[tokenizer.eos_token_id]
    assert silent[tokenizer.convert_tokens_to_ids("<|image_pad|>")]
    assert silent[tokenizer("é").input_ids[0]]
    assert silent[len(tokenizer) :].all()
    assert not silent[tokenizer("def").input_ids[0]]
    assert silent.float().mean() < 0.1


def test_a_large_image_is_cut_to_the_pixel_limit(folder: Path) -> None:
    processor = AutoProcessor.from_pretrained(folder)
    inputs = prompt(processor, "green", (1536, 1024))
    assert inputs["image_grid_thw"].tolist() == [[1, 52, 78]]


def test_text_survives_the_tokenizer(folder: Path) -> None:
    tokenizer = AutoProcessor.from_pretrained(folder).tokenizer
    text = "def parse(self, x):\n\treturn é + 1  # 日本 12345\n"
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_a_light_tower_attends_to_windows_alone_and_loads(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, num_tower_layers=1)
    model: Any = AutoModelForImageTextToText.from_pretrained(tmp_path)
    assert len(model.model.visual.blocks) == 1
    assert list(model.config.vision_config.fullatt_block_indexes) == []
    assert load_layout(tmp_path).plan((280, 140), "cpu").num_tokens == 50
