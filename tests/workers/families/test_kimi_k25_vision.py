"""The tower answers as transformers does, and a batch never changes an answer."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor

from tests.kimi_checkpoint import make_kimi_checkpoint
from workers.families.kimi_k25.vision import VisionModel
from workers.families.vision import Grid

SIZES = [(64, 96), (150, 90), (33, 180), (121, 120), (28, 28)]


@dataclass(frozen=True)
class Case:
    """A reference model with its inputs for one image per size."""

    model: Any
    patches: list[Tensor]  # [patches, 3, 14, 14]
    grids: list[Grid]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = make_kimi_checkpoint(tmp_path_factory.mktemp("vision"))
    processor = transformers.Kimi_K25ImageProcessor.from_pretrained(path)
    random = np.random.default_rng(5)
    images = [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for height, width in SIZES
    ]
    outputs = [processor(image, return_tensors="pt") for image in images]
    return Case(
        transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32),
        [output["pixel_values"] for output in outputs],
        [tuple(output["image_grid_thw"][0].tolist()) for output in outputs],
    )


def owned(case: Case, dtype: torch.dtype = torch.float32) -> VisionModel:
    """A model with modules of its own, so that the reference stays as the library made it."""
    model = copy.deepcopy(case.model.model).to(dtype)
    return VisionModel(model.vision_tower, model.mm_projector)


def encode(vision: VisionModel, patches: list[Tensor], grids: list[Grid]) -> list[Tensor]:
    return vision.encode(torch.cat(patches).flatten(1), grids)


def reference(model: Any, patches: Tensor, grid: Grid) -> Tensor:
    """One image through transformers: [1, tokens, hidden]."""
    with torch.no_grad():
        output = model.get_image_features(patches, torch.tensor([grid]), return_dict=True)
    features: Tensor = output.pooler_output[0]
    return features[None]


def largest_difference(case: Case, embeddings: list[Tensor]) -> float:
    """Over all images, relative to the size of the values."""
    worst = 0.0
    for embedding, patches, grid in zip(embeddings, case.patches, case.grids, strict=True):
        expected = reference(case.model.model, patches, grid)
        assert embedding.shape == expected.shape
        worst = max(worst, float((embedding - expected).abs().max() / expected.abs().max()))
    return worst


def test_batch_of_sizes_equals_one_by_one_transformers(case: Case) -> None:
    assert largest_difference(case, encode(owned(case), case.patches, case.grids)) < 1e-5


def test_images_alone_equal_images_in_a_batch(case: Case) -> None:
    vision = owned(case)
    alone = [
        encode(vision, [patches], [grid])[0]
        for patches, grid in zip(case.patches, case.grids, strict=True)
    ]
    assert largest_difference(case, alone) < 1e-5
    together = encode(vision, case.patches, case.grids)
    for one, other in zip(alone, together, strict=True):
        assert (one - other).abs().max() < 1e-5 * one.abs().max()


def test_half_precision_stays_as_near_as_the_librarys(case: Case) -> None:
    vision = owned(case, torch.bfloat16)
    half = copy.deepcopy(case.model.model).to(torch.bfloat16)
    embeddings = encode(vision, case.patches, case.grids)
    for embedding, patches, grid in zip(embeddings, case.patches, case.grids, strict=True):
        assert embedding.dtype == torch.bfloat16
        exact = reference(case.model.model, patches, grid)
        theirs = reference(half, patches.bfloat16(), grid)
        assert (embedding - exact).abs().mean() < 1.5 * (theirs - exact).abs().mean()


def test_images_of_one_size_share_nothing_but_the_computation(case: Case) -> None:
    pair = [case.patches[1], -case.patches[1]]
    together = encode(owned(case), pair, [case.grids[1]] * 2)
    for embedding, patches in zip(together, pair, strict=True):
        expected = reference(case.model.model, patches, case.grids[1])
        assert (embedding - expected).abs().max() < 1e-5 * expected.abs().max()


def test_the_right_grid_matters(case: Case) -> None:
    turned = [(frames, columns, rows) for frames, rows, columns in case.grids]
    assert largest_difference(case, encode(owned(case), case.patches, turned)) > 1e-2


def test_the_order_of_patches_matters(case: Case) -> None:
    swapped = [patches.flip(0) for patches in case.patches]
    assert largest_difference(case, encode(owned(case), swapped, case.grids)) > 1e-2


def test_another_image_changes_only_its_own_embedding(case: Case) -> None:
    vision = owned(case)
    before = encode(vision, case.patches, case.grids)
    changed = [case.patches[0], -case.patches[1], *case.patches[2:]]
    after = encode(vision, changed, case.grids)
    equal = [torch.equal(old, new) for old, new in zip(before, after, strict=True)]
    assert equal == [True, False, True, True, True]


def test_facts_describe_the_embeddings(case: Case) -> None:
    vision = owned(case)
    first = encode(vision, case.patches[:1], case.grids[:1])[0]
    assert first.shape == (vision.num_levels, first.shape[1], vision.hidden_size)
    assert first.dtype == vision.dtype
    assert first[:, :1].numel() * first.itemsize == vision.embedding_bytes_per_token
