"""Make one training batch from a seed and a step number, always the same one."""

from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ops.demo_model.drafts import Draft, Mix
from ops.demo_model.labels import NUM_CLASSES, UNASKED, label, label_patches, rank
from ops.demo_model.questions import NO_IMAGE
from ops.demo_model.rows import Vocabulary, pack

PICTURES_ONLY = Mix({"one": 0.33, "two": 0.2, "many": 0.15, "number": 0.32}, 0.0, 32, 0, 0)


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything the training forward takes. Cells are merged tokens, in image order."""

    pixel_values: Tensor  # [patches, 1536], float32
    grid: Tensor  # [images, 3], int64, in patches
    patch_labels: Tensor  # [7, patches], int64
    cell_labels: Tensor  # [7, cells], int64
    ids: Tensor  # [rows, length], int64
    positions: Tensor  # [3, rows, length], int64
    weights: Tensor  # [rows, length], float32
    visible: Tensor  # [rows, length, length], bool
    cell_order: Tensor  # [image tokens], int64: the cell behind each image token of the rows
    ordinals: Tensor  # [image tokens], int64: which image of the prompt the token belongs to
    ranks: Tensor  # [2, image tokens], int64: equal shapes and colours before it, -100 unasked
    twins: Tensor  # [image tokens], int64: 1 if image 1 shows the same, 0 if not, -100 unasked


class BatchMaker:
    """Builds batches; holds the tokenizer and the image processor, and no other state."""

    def __init__(self, vocabulary: Vocabulary, processor: Qwen2VLImageProcessorPil) -> None:
        self._vocabulary = vocabulary
        self._processor = processor

    def make(self, seed: int, step: int, mix: Mix) -> Batch:
        """The batch of a step of the joint stage."""
        draft = Draft(Random(f"{seed}:{step}"), self._vocabulary)
        for _ in range(mix.num_rows):
            if draft.random.random() < mix.pairs:
                draft.add_pair_row(mix)
            else:
                draft.add_image_row(mix)
        for _ in range(mix.num_text_rows):
            draft.add_text_row(mix)
        return finish(draft, self._processor)

    def make_pictures(self, seed: int, step: int) -> Batch:
        """Pictures with labels, for the vision-only stage; one row keeps the shapes whole."""
        draft = Draft(Random(f"pictures:{seed}:{step}"), self._vocabulary)
        for _ in range(PICTURES_ONLY.num_rows):
            draft.add_picture(draft.scene(PICTURES_ONLY))
        draft.begin_row().branch(sees_images=False).answer(NO_IMAGE, 1.0)
        return finish(draft, self._processor)


def finish(draft: Draft, processor: Qwen2VLImageProcessorPil) -> Batch:
    """The draft as tensors."""
    features = processor(images=draft.images, return_tensors="pt")
    patches, cells = _label(draft)
    packed = pack(draft.rows)
    order, ordinals, twins = draft.image_tokens(cells[0] > 0)
    ranks = np.where(ordinals == 0, _rank(draft)[:, order], UNASKED)
    return Batch(
        pixel_values=features["pixel_values"],
        grid=features["image_grid_thw"],
        patch_labels=torch.from_numpy(patches),
        cell_labels=torch.from_numpy(cells),
        ids=torch.from_numpy(packed.ids),
        positions=torch.from_numpy(packed.positions),
        weights=torch.from_numpy(packed.weights),
        visible=torch.from_numpy(packed.visible),
        cell_order=torch.from_numpy(order),
        ordinals=torch.from_numpy(ordinals),
        ranks=torch.from_numpy(ranks),
        twins=torch.from_numpy(twins),
    )


def _rank(draft: Draft) -> np.ndarray:
    """Ranks of all cells of the batch: [2, cells]."""
    pairs = zip(draft.scenes, draft.pictures, strict=True)
    ranks = [rank(scene, p.num_rows, p.num_columns).reshape(2, -1) for scene, p in pairs]
    return np.concatenate(ranks, axis=1)


def _label(draft: Draft) -> tuple[np.ndarray, np.ndarray]:
    """Labels of all patches and of all cells of the batch."""
    patches, cells = [], []
    for scene, picture in zip(draft.scenes, draft.pictures, strict=True):
        grid = picture.num_rows, picture.num_columns
        patches.append(label_patches(scene, *grid))
        cells.append(label(scene, *grid).reshape(len(NUM_CLASSES), -1))
    return np.concatenate(patches, axis=1), np.concatenate(cells, axis=1)
