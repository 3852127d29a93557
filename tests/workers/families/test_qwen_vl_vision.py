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
from workers.families.crew import use_threads
from workers.families.qwen_vl.vision import VisionModel
from workers.families.tower import Run, TowerAttention, runs_of
from workers.families.vision import Grid

SEGMENTS = [16, 16, 8, 16, 4]  # with equal neighbours, and equal ones that are apart
# Of the largest value. In bfloat16 one step of rounding is 2**-8.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2**-7}
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


def attention_difference(case: Case, segments: list[int], dtype: torch.dtype) -> float:
    """A block's attention over `segments` against the library's over `SEGMENTS`."""
    tower = copy.deepcopy(case.model.model.visual)
    attention = tower.blocks[0].attn.to(dtype)
    random = torch.Generator().manual_seed(3)
    hidden = torch.randn(sum(SEGMENTS), attention.dim, generator=random).to(dtype)
    places = torch.randint(0, 30, (sum(SEGMENTS), 2), generator=random)
    rotation = tower.rotary_pos_emb(hidden, places)
    ends = torch.tensor([0, *SEGMENTS]).cumsum(0)
    with torch.no_grad():
        expected = attention(hidden, ends, position_embeddings=rotation)
        taken_over = TowerAttention(attention.qkv, attention.proj, attention.num_heads)
        actual = taken_over(hidden, runs_of(segments), rotation)
    return float((actual - expected).abs().max() / expected.abs().max())


def test_batch_of_sizes_equals_one_by_one_transformers(case: Case) -> None:
    vision = owned(case)

    embeddings = vision.encode(torch.cat(case.patches), case.grids)

    assert largest_difference(case, embeddings) < 1e-5


@pytest.mark.parametrize("num_threads", [2, 3, 8])
def test_images_on_threads_of_their_own_equal_one_by_one_transformers(
    case: Case, num_threads: int
) -> None:
    before = torch.get_num_threads()
    use_threads(num_threads)
    vision = owned(case)

    embeddings = vision.encode(torch.cat(case.patches), case.grids)

    use_threads(before)
    assert largest_difference(case, embeddings) < 1e-5


def test_images_alone_equal_images_in_a_batch(case: Case) -> None:
    vision = owned(case)

    alone = [
        vision.encode(patches, [grid])[0]
        for patches, grid in zip(case.patches, case.grids, strict=True)
    ]

    assert largest_difference(case, alone) < 1e-5


def test_images_of_one_size_share_nothing_but_the_computation(case: Case) -> None:
    vision = owned(case)
    pair = [case.patches[1], -case.patches[1]]

    together = vision.encode(torch.cat(pair), [case.grids[1]] * 2)

    for embedding, patches in zip(together, pair, strict=True):
        expected = reference(case, patches, case.grids[1])
        assert (embedding - expected).abs().max() < 1e-5 * expected.abs().max()


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_attention_equals_the_library_s(case: Case, dtype: torch.dtype) -> None:
    assert attention_difference(case, SEGMENTS, dtype) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
@pytest.mark.parametrize("segments", [[16, 8, 16, 16, 4], [32, 8, 16, 4], [60]], ids=str)
def test_the_right_segments_matter(case: Case, dtype: torch.dtype, segments: list[int]) -> None:
    assert attention_difference(case, segments, dtype) > 4 * TOLERANCES[dtype]


def test_equal_neighbours_make_a_run() -> None:
    assert runs_of(SEGMENTS) == (Run(0, 2, 16), Run(32, 1, 8), Run(40, 1, 16), Run(56, 1, 4))


def test_equal_windows_are_attended_to_in_one_call(case: Case) -> None:
    vision = owned(case)
    depth = case.model.config.vision_config.depth

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        vision.encode(case.patches[1], case.grids[1:2])

    calls = sum(event.name == "aten::scaled_dot_product_attention" for event in profile.events())
    # Of six windows four are smaller: three at the edges, of one size, and one in the corner.
    num_windowed = 2 if case.model.config.model_type == "qwen2_5_vl" else 0
    assert calls == (depth - num_windowed) + num_windowed * 3


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
