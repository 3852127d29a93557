"""The tower answers as transformers does, and a batch never changes an answer."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from torch import Tensor

from tests.checkpoints import MODEL_TYPES, make_checkpoint
from workers.families.qwen_vl.vision import Grid, VisionModel

SIZES = [(64, 96), (150, 90), (33, 210), (120, 121)]


@dataclass(frozen=True)
class Case:
    """A reference model with its inputs for one image per size."""

    model: Any
    patches: list[Tensor]
    grids: list[Grid]


@pytest.fixture(scope="module", params=MODEL_TYPES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    path = make_checkpoint(tmp_path_factory.mktemp("vision"), request.param)
    return Case(
        transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32),
        *inputs(path),
    )


def inputs(path: Path) -> tuple[list[Tensor], list[Grid]]:
    processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(path)
    random = np.random.default_rng(5)
    images = [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for height, width in SIZES
    ]
    outputs = [processor(image, return_tensors="pt") for image in images]
    return (
        [output["pixel_values"] for output in outputs],
        [tuple(output["image_grid_thw"][0].tolist()) for output in outputs],
    )


def owned(case: Case) -> VisionModel:
    """A model with a tower of its own, so that the reference stays as the library made it."""
    return VisionModel(copy.deepcopy(case.model.model.visual))


def reference(case: Case, patches: Tensor, grid: Grid) -> Tensor:
    """One image through transformers: [levels, tokens, hidden]."""
    with torch.no_grad():
        output = case.model.model.get_image_features(
            patches, torch.tensor([grid]), return_dict=True
        )
    deepstack = [level[0] for level in getattr(output, "deepstack_features", ())]
    return torch.stack([output.pooler_output[0], *deepstack])


def largest_difference(case: Case, embeddings: list[Tensor]) -> float:
    """Over all images, relative to the size of the values."""
    worst = 0.0
    for embedding, patches, grid in zip(embeddings, case.patches, case.grids, strict=True):
        expected = reference(case, patches, grid)
        assert embedding.shape == expected.shape
        difference = (embedding - expected).abs().max() / expected.abs().max()
        worst = max(worst, float(difference))
    return worst


def test_batch_of_sizes_equals_one_by_one_transformers(case: Case) -> None:
    vision = owned(case)

    embeddings = vision.encode(torch.cat(case.patches), case.grids)

    assert largest_difference(case, embeddings) < 1e-5


def test_images_alone_equal_images_in_a_batch(case: Case) -> None:
    vision = owned(case)

    alone = [
        vision.encode(patches, [grid])[0]
        for patches, grid in zip(case.patches, case.grids, strict=True)
    ]

    assert largest_difference(case, alone) < 1e-5


def test_the_right_grid_matters(case: Case) -> None:
    vision = owned(case)
    turned = [(frames, columns, rows) for frames, rows, columns in case.grids]

    embeddings = vision.encode(torch.cat(case.patches), turned)

    assert largest_difference(case, embeddings) > 1e-3


def test_another_image_changes_only_its_own_embedding(case: Case) -> None:
    vision = owned(case)
    before = vision.encode(torch.cat(case.patches), case.grids)
    changed = [case.patches[0], -case.patches[1], *case.patches[2:]]

    after = vision.encode(torch.cat(changed), case.grids)

    assert [torch.equal(old, new) for old, new in zip(before, after, strict=True)] == [
        True,
        False,
        True,
        True,
    ]


def test_facts_describe_the_embeddings(case: Case) -> None:
    vision = owned(case)

    first = vision.encode(case.patches[0], case.grids[:1])[0]

    assert first.shape == (vision.num_levels, first.shape[1], vision.hidden_size)
    assert first.dtype == vision.dtype
    assert first[:, :1].numel() * first.itemsize == vision.embedding_bytes_per_token
