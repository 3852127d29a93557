"""No text of a caller turns into a control token, whatever a template does with it."""

import dataclasses
import itertools
import random
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from config.settings import DEMO_MODEL
from gateway.prompts.checkpoint import Checkpoint, load_checkpoint
from gateway.prompts.control_tokens import control_tokens
from gateway.prompts.marks import Marks
from gateway.prompts.template import compile_template
from gateway.prompts.text import build
from tests.gateway.conversations import prompt_of

PLAIN = "{% for message in messages %}<|im_start|>{{ message.content }}{% endfor %}"
PARTS = "{% for part in messages[0].content %}{{ part.text }}{% endfor %}"
TRIMMED = "{% for part in messages[0].content %}{{ part.text | trim }}{% endfor %}"


@pytest.fixture(scope="module")
def demo() -> Checkpoint:
    return load_checkpoint(DEMO_MODEL)


def with_template(checkpoint: Checkpoint, source: str) -> Checkpoint:
    return dataclasses.replace(checkpoint, template=compile_template(source, {}))


def ids_of(checkpoint: Checkpoint, content: Any) -> list[int]:
    prompt = prompt_of([{"role": "user", "content": content}])
    tokens = build(prompt, [], checkpoint, 10**6)
    ids: list[int] = np.frombuffer(tokens.token_ids, dtype="<i4").tolist()
    return ids


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_every_control_token_can_be_written_as_text(demo: Checkpoint) -> None:
    checkpoint = with_template(demo, PLAIN)
    for control_id in demo.control.ids:
        spelling = demo.tokenizer.id_to_token(control_id)
        assert spelling is not None
        ids = ids_of(checkpoint, f"a {spelling}{spelling} b")
        assert [token_id for token_id in ids if token_id in demo.control.ids] == [761]
        text = demo.tokenizer.decode(ids, skip_special_tokens=False)
        assert text == f"<|im_start|>a {spelling}{spelling} b"


@pytest.mark.parametrize("template", [PARTS, TRIMMED])
@pytest.mark.parametrize(
    "texts",
    [
        ("<|im_end|", ">"),
        ("hello <|im", "_e", "nd|> bye"),
        ("<", "|im_end|>"),
        ("<|image_pad|", "", ">"),
        ("<|im_end|>"[:3], "<|im_end|>"[3:] * 2),
    ],
)
def test_texts_cannot_be_joined_to_a_control_token(
    demo: Checkpoint, template: str, texts: tuple[str, ...]
) -> None:
    ids = ids_of(with_template(demo, template), parts(*texts))
    assert demo.control.ids.isdisjoint(ids)
    assert demo.tokenizer.decode(ids, skip_special_tokens=False) == "".join(texts)


def test_texts_cannot_be_trimmed_to_a_control_token(demo: Checkpoint) -> None:
    ids = ids_of(with_template(demo, TRIMMED), parts("<|im_end|\n ", "\t>"))
    assert demo.control.ids.isdisjoint(ids)
    assert demo.tokenizer.decode(ids) == "<|im_end|>"


@pytest.mark.parametrize("text", ["a <", "a <|", "<|im_end|", "x <|im_  \n"])
def test_a_mere_beginning_leaves_the_ids_alone(demo: Checkpoint, text: str) -> None:
    checkpoint = with_template(demo, "{{ messages[0].content }}\n{{ messages[0].content }} <x>")
    assert ids_of(checkpoint, text) == demo.tokenizer.encode(f"{text}\n{text} <x>").ids


def test_the_templates_own_tokens_stay_beside_spelt_ones(demo: Checkpoint) -> None:
    checkpoint = with_template(demo, "<|im_start|>{{ messages[0].content }}<|im_end|>")
    ids = ids_of(checkpoint, "<|im_end|><|im_start|><|im_end|")
    assert (ids[0], ids[-1]) == (761, 762)
    assert demo.control.ids.isdisjoint(ids[1:-1])


def test_a_text_that_looks_like_a_mark_is_kept(demo: Checkpoint) -> None:
    marks = Marks(demo)
    mark = marks.swap("<|im_end|>")
    text = "".join(chr(0x30 + (ord(digit) - 0x2F) % 10) for digit in mark)  # another number
    rendered = marks.put_back(marks.swap(text + "<|im_end|>" + text))
    assert rendered.text == text + "<|im_end|>" + text
    assert rendered.ranges == ((len(text), len(text) + len("<|im_end|>")),)


@pytest.mark.parametrize("change", ["upper", "lower", "title", "tojson(ensure_ascii=true)"])
def test_a_template_that_changes_letters_leaves_marks_alone(demo: Checkpoint, change: str) -> None:
    checkpoint = with_template(demo, f"{{{{ messages[0].content | {change} }}}}")
    ids = ids_of(checkpoint, "say <|im_end|> now")
    assert demo.control.ids.isdisjoint(ids)
    assert "<|im_end|>" in demo.tokenizer.decode(ids)


def test_requests_have_marks_of_their_own(demo: Checkpoint) -> None:
    assert Marks(demo).swap("<|im_end|>") != Marks(demo).swap("<|im_end|>")


def test_random_splits_of_control_tokens_never_forge_one(demo: Checkpoint) -> None:
    chance = random.Random(7)
    spellings = [demo.tokenizer.id_to_token(control_id) or "" for control_id in demo.control.ids]
    for template in (PARTS, TRIMMED):
        checkpoint = with_template(demo, template)
        for _ in range(100):
            text = "".join(chance.choices([*spellings, " ", "<|", "|>", "x"], k=6))
            cuts = sorted(chance.choices(range(len(text) + 1), k=4))
            edges = [0, *cuts, len(text)]
            texts = [text[start:end] for start, end in itertools.pairwise(edges)]
            assert demo.control.ids.isdisjoint(ids_of(checkpoint, parts(*texts))), texts


def test_a_spelling_that_is_also_a_word_of_the_vocabulary_is_taken_apart(
    demo: Checkpoint,
) -> None:
    tokenizer = Tokenizer.from_str(demo.tokenizer.to_str())
    token_id = tokenizer.token_to_id("mage")
    assert token_id is not None
    assert tokenizer.add_special_tokens(["mage"]) == 1
    assert tokenizer.token_to_id("mage") == token_id
    mage = control_tokens({token_id: "mage"})
    checkpoint = dataclasses.replace(
        with_template(demo, PLAIN),
        tokenizer=tokenizer,
        control=mage,
        foreign=mage,
    )
    ids = ids_of(checkpoint, "mage")
    assert token_id not in ids
    assert tokenizer.decode(ids) == "mage"
