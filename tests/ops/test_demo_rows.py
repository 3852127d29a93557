"""A branch of a packed row is what a request would be, token for token and score for score."""

from pathlib import Path
from random import Random

import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer
from transformers import AutoTokenizer, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ops.demo_model.batches import finish
from ops.demo_model.checkpoint import load_model
from ops.demo_model.compose import sample_scene
from ops.demo_model.drafts import Draft
from ops.demo_model.model import Learner
from ops.demo_model.rows import Row, Vocabulary

CHECKPOINT = Path("workers/demo_model")
QUESTION = "What is in the second image?"


@pytest.fixture(scope="module")
def learner() -> Learner:
    vocabulary = Vocabulary(Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")))
    return Learner(load_model(CHECKPOINT), vocabulary).eval()


def _images() -> tuple[Draft, list[Image.Image]]:
    vocabulary = Vocabulary(Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json")))
    draft = Draft(Random(5), vocabulary)
    draft.add_picture(sample_scene(draft.random, (141, 96), "one"))
    draft.add_picture(sample_scene(draft.random, (97, 203), "number"))
    return draft, draft.images


@pytest.mark.slow
@pytest.mark.parametrize("words_first", [False, True])
def test_branch_equals_request(learner: Learner, words_first: bool) -> None:
    draft, images = _images()
    row = Row(draft.vocabulary)
    draft.rows.append(row)
    row.begin("Be brief.")
    if words_first:
        branch = row.branch(sees_images=False)
        branch.say(QUESTION)
        branch.show(draft.pictures)
    else:
        row.share_images(draft.pictures)
        row.branch(sees_images=True).answer("no", 1.0)
        branch = row.branch(sees_images=True)
        branch.say(QUESTION)
    branch.answer("yes", 1.0)
    processor = Qwen2VLImageProcessorPil.from_pretrained(CHECKPOINT)
    batch = finish(draft, processor)
    with torch.no_grad():
        tower = learner.model.model.visual(batch.pixel_values, grid_thw=batch.grid)
        states = learner._decode(batch, tower.pooler_output, tower.deepstack_features)
        ours = learner.model.lm_head(states[-1][0, len(row.ids) - 3])

    content: list[dict[str, str]] = [{"type": "image"}, {"type": "image"}]
    words = [{"type": "text", "text": QUESTION}]
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": words + content if words_first else content + words},
    ]
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    features = processor(images=images, return_tensors="pt")
    for grid in features["image_grid_thw"]:
        text = text.replace("<|image_pad|>", "<|hole|>" * (int(grid.prod()) // 4), 1)
    ids = tokenizer(text.replace("<|hole|>", "<|image_pad|>"), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        theirs = Qwen3VLForConditionalGeneration.from_pretrained(CHECKPOINT, dtype=torch.float32)(
            input_ids=ids,
            pixel_values=features["pixel_values"],
            image_grid_thw=features["image_grid_thw"],
            mm_token_type_ids=(ids == row.vocabulary.image_pad).int(),
        ).logits[0, -1]
    own = [
        i for i, s in zip(row.ids, row.segments, strict=True) if s in (0, 1, branch.cursor.segment)
    ]
    assert own[:-2] == ids[0].tolist()
    assert torch.allclose(ours, theirs, atol=1e-4), (ours - theirs).abs().max()
