"""Greedy answers through HTTP equal transformers' `generate` on the same checkpoint."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from config.settings import DEMO_MODEL
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from tests.journeys.server import Server, running
from tests.kimi_patches import PillowImageProcessor
from tests.pictures import image_part, noise, text_part
from workers.families import load_layout
from workers.families.kimi_k25.layout import KimiLayout

pytestmark = pytest.mark.slow

NUM_REQUESTS = 45
MAX_TOKENS = 12
QUESTIONS = (
    "What is in the image?",
    "Which one is larger?",
    "Describe it, please.",
    "how many",
    "Ünï?",
)


@dataclass(frozen=True)
class Case:
    """One request: messages whose image parts hold pictures, in transformers' form."""

    messages: list[dict[str, Any]]
    pictures: list[Image.Image]


def make_case(number: int) -> Case:
    """0 to 4 pictures of their own sizes, before, between and after the text, some in two turns."""
    sizes = [(60 + 37 * i + 3 * number, 230 - 31 * i - 2 * number) for i in range(number % 5)]
    pictures = [noise(1000 * number + i, size) for i, size in enumerate(sizes)]
    parts: list[dict[str, Any]] = [{"type": "image", "image": picture} for picture in pictures]
    question = f"{QUESTIONS[number % len(QUESTIONS)]} ({number})"
    parts.insert(number % (len(parts) + 1), text_part(question))
    messages: list[dict[str, Any]] = []
    if number % 3 == 0:
        messages.append({"role": "system", "content": "Answer briefly."})
    if number % 4 == 3:
        messages.append({"role": "user", "content": parts[:2]})
        messages.append({"role": "assistant", "content": "I see."})
        messages.append({"role": "user", "content": [*parts[2:], text_part("And now?")]})
    else:
        messages.append({"role": "user", "content": parts})
    return Case(messages, pictures)


def over_http(case: Case) -> list[dict[str, Any]]:
    """The same messages in OpenAI's form."""

    def part(one: dict[str, Any]) -> dict[str, Any]:
        return image_part(one["image"]) if one["type"] == "image" else one

    return [
        message | {"content": [part(one) for one in message["content"]]}
        if isinstance(message["content"], list)
        else message
        for message in case.messages
    ]


def _pillow_processor(path: Path) -> Any:
    """The library's image processor, or one that resizes with Pillow where it has none."""
    layout = load_layout(path)
    if not isinstance(layout, KimiLayout):
        return Qwen2VLImageProcessorPil.from_pretrained(path)
    processor = PillowImageProcessor.from_pretrained(path)
    processor.layout = layout
    return processor


class Oracle:
    """transformers on the same checkpoint."""

    def __init__(self, path: Path) -> None:
        self.processor = transformers.AutoProcessor.from_pretrained(path)
        self.processor.image_processor = _pillow_processor(path)
        self.model = transformers.AutoModelForImageTextToText.from_pretrained(
            path, dtype=torch.float32
        ).eval()

    def answer(self, messages: list[dict[str, Any]]) -> tuple[str, int, int]:
        """The answer's text, its number of tokens and the prompt's."""
        inputs = self.processor.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            output = self.model.generate(**inputs, max_new_tokens=MAX_TOKENS, do_sample=False)
        num_prompt_tokens = inputs["input_ids"].shape[1]
        ids = output[0, num_prompt_tokens:]
        text = self.processor.tokenizer.decode(ids, skip_special_tokens=True)
        return text, len(ids), num_prompt_tokens


@dataclass(frozen=True)
class Subject:
    """A served checkpoint with its oracle."""

    server: Server
    oracle: Oracle


@pytest.fixture(scope="module", params=[*ALL_MODEL_TYPES, "demo"])
def subject(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[Subject]:
    name = request.param
    folder = tmp_path_factory.mktemp("checkpoints")
    path = DEMO_MODEL if name == "demo" else make_checkpoint(folder, name)
    # Small steps, so that prompts are cut inside images; two owners, so that images are split.
    workers = "cpu:vision,cpu:vision+language"
    with running(model=path, workers=workers, max_step_tokens=48) as server:
        yield Subject(server, Oracle(path))


def ask(server: Server, case: Case) -> tuple[str, int, int]:
    answer = server.client.chat.completions.create(
        model=server.model,
        messages=over_http(case),
        max_tokens=MAX_TOKENS,
        temperature=0,
    )
    assert answer.usage is not None
    message = answer.choices[0].message
    thought = (message.model_extra or {}).get("reasoning_content", "")  # all that some ever write
    text = f"{thought}{message.content or ''}"
    return text, answer.usage.completion_tokens, answer.usage.prompt_tokens


def test_answers_equal_transformers_alone_and_sixteen_at_once(subject: Subject) -> None:
    cases = [make_case(number) for number in range(NUM_REQUESTS)]
    expected = [subject.oracle.answer(case.messages) for case in cases]
    assert len({text for text, _, _ in expected}) > NUM_REQUESTS / 3 or subject.server.model == (
        "demo_model"
    )
    alone = [ask(subject.server, case) for case in cases]
    assert alone == expected
    with ThreadPoolExecutor(16) as threads:
        together = list(threads.map(lambda case: ask(subject.server, case), cases))
    assert together == expected


@pytest.mark.parametrize("subject", ALL_MODEL_TYPES, indirect=True)
def test_swapped_pictures_would_be_noticed(subject: Subject) -> None:
    """Not on the demo model, which says the same about any two noise pictures."""
    differ = 0
    cases = [case for case in map(make_case, range(NUM_REQUESTS)) if len(case.pictures) >= 2]
    for case in cases:
        reverse = iter(case.pictures[::-1])
        swapped = [
            message
            | {
                "content": [
                    {"type": "image", "image": next(reverse)} if part["type"] == "image" else part
                    for part in message["content"]
                ]
            }
            if isinstance(message["content"], list)
            else message
            for message in case.messages
        ]
        differ += ask(subject.server, case) != subject.oracle.answer(swapped)
    assert differ >= 0.9 * len(cases)


def see_through(seed: int, size: tuple[int, int]) -> Image.Image:
    picture = noise(seed, size)
    picture.putalpha(Image.linear_gradient("L").resize(size))
    return picture


def asked_about(picture: Image.Image) -> Case:
    content = [{"type": "image", "image": picture}, text_part("What is in the image?")]
    return Case([{"role": "user", "content": content}], [picture])


@pytest.mark.parametrize("subject", ["kimi_k25"], indirect=True)
def test_colours_hidden_under_transparency_show_where_no_ground_is_named(subject: Subject) -> None:
    picture = see_through(77, (300, 140))
    answer = ask(subject.server, asked_about(picture))
    assert answer == subject.oracle.answer(asked_about(picture.convert("RGB")).messages)
    black = Image.alpha_composite(Image.new("RGBA", picture.size, "black"), picture)
    assert answer != subject.oracle.answer(asked_about(black.convert("RGB")).messages)


def test_transparent_pictures_lie_on_the_board_that_a_kimi_checkpoint_names(tmp_path: Path) -> None:
    path = make_checkpoint(tmp_path, "kimi_k25")
    board = {"pattern": "chessboard", "chessboard_square_size": 8, "chessboard_gray_value": 180}
    public = {"transparent_bg_config": board, "transparent_bg_fill_stage": "after_resize"}
    file = path / "preprocessor_config.json"
    content = json.loads(file.read_text()) | {
        "media_proc_cfg": public | {"in_patch_limit": 100, "patch_limit_on_one_side": 14}
    }
    file.write_text(json.dumps(content))
    oracle = Oracle(path)
    with running(model=path) as server:
        for seed, size in enumerate([(60, 90), (300, 140), (150, 420)]):
            case = asked_about(see_through(seed, size))
            answer = ask(server, case)
            assert answer == oracle.answer(case.messages)
            assert answer != oracle.answer(asked_about(case.pictures[0].convert("RGB")).messages)
