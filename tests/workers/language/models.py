"""Library models beside the engine's adapter of the same weights, and random requests for them."""

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from workers.arena import Arena, Arenas
from workers.families import Layout, load_layout
from workers.families.qwen_vl.text import TextModel
from workers.messages import GenerateJob, Region, Sampling, Span, TensorRef

NUM_PLAIN_IDS = 760  # higher ids are special
VISION_START, VISION_END, IMAGE = 763, 764, 766
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Model:
    """The library's model and our decoder over a second copy of its text part."""

    library: Any
    decoder: TextModel
    layout: Layout


@dataclass(frozen=True)
class Request:
    """A prompt with images, as both sides take it."""

    token_ids: list[int]
    starts: list[int]  # first token of each image
    grids: list[Grid]
    pixels: list[Tensor]  # [patches, values] each
    embeddings: list[Tensor]  # [1 + levels, tokens, hidden] each, from the library's tower
    max_tokens: int

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


class LentArenas(Arenas):
    """A worker's arenas, of which the test is the gateway."""

    def __init__(self) -> None:
        self.arena = Arena(0, 64 << 20)
        self.regions: list[Region] = []
        super().__init__([os.dup(self.arena.file_number)])

    def store(self, tensor: Tensor) -> TensorRef:
        """Lay a tensor down where an owner would."""
        content = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        region = self.arena.allocate(len(content))
        assert region is not None
        self.arena.view(region)[: len(content)] = content
        self.regions.append(region)
        return TensorRef(region, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def load_model(path: Path) -> Model:
    """Load a checkpoint twice; attention hooks must not reach the library's own copy."""
    first, second = (_load(path) for _ in range(2))
    vision = first.config.vision_config
    levels = len(getattr(vision, "deepstack_visual_indexes", ()))
    decoder = TextModel(second.model.language_model, second.lm_head, levels)
    return Model(first, decoder, load_layout(path))


def _load(path: Path) -> Any:
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    return model.eval()


def make_request(model: Model, seed: int, num_images: int) -> Request:
    """A random prompt; every image has its own size and content."""
    chance = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    ids, starts, grids, pixels = _text(chance, 3, 25), [], [], []
    for _ in range(num_images):
        grid = (1, 2 * chance.randint(1, 6), 2 * chance.randint(1, 6))
        starts.append(len(ids) + 1)
        grids.append(grid)
        num_patches = grid[1] * grid[2]
        ids += [VISION_START, *[IMAGE] * (num_patches // 4), VISION_END, *_text(chance, 1, 12)]
        size = 3 * 2 * model.library.config.vision_config.patch_size**2
        pixels.append(torch.randn(num_patches, size, generator=generator) * 1.5)
    embeddings = _embed_images(model, pixels, grids)
    return Request(ids, starts, grids, pixels, embeddings, chance.randint(2, 12))


def _text(chance: random.Random, least: int, most: int) -> list[int]:
    return [chance.randrange(NUM_PLAIN_IDS) for _ in range(chance.randint(least, most))]


@torch.inference_mode()
def _embed_images(model: Model, pixels: list[Tensor], grids: list[Grid]) -> list[Tensor]:
    found = []
    for image, grid in zip(pixels, grids, strict=True):
        output = model.library.get_image_features(image, torch.tensor([grid]), return_dict=True)
        levels = [level[0] for level in getattr(output, "deepstack_features", None) or ()]
        if levels and levels[0].ndim == 1:
            levels = list(output.deepstack_features)
        found.append(torch.stack([output.pooler_output[0], *levels]))
    return found


def inputs_for_library(request: Request) -> dict[str, Tensor]:
    """Keyword arguments of the library's full model."""
    ids = torch.tensor([request.token_ids])
    inputs = {"input_ids": ids, "mm_token_type_ids": (ids == IMAGE).int()}
    if request.grids:
        inputs["pixel_values"] = torch.cat(request.pixels)
        inputs["image_grid_thw"] = torch.tensor(request.grids)
    return inputs


def generate(model: Model, request: Request) -> list[int]:
    """The library's greedy answer; nothing stops it early."""
    output = model.library.generate(
        **inputs_for_library(request),
        max_new_tokens=request.max_tokens,
        do_sample=False,
        eos_token_id=None,
    )
    answer: list[int] = output[0, request.num_tokens :].tolist()
    return answer


def make_job(
    arenas: LentArenas,
    request: Request,
    job_id: str,
    sampling: Sampling | None = None,
    seconds_left: float = 60.0,
) -> GenerateJob:
    """The request as the engine takes it; greedy unless `sampling` says otherwise."""
    spans = tuple(
        Span(
            start=start,
            num_tokens=tensor.shape[1],
            grid=grid,
            embeddings=arenas.store(tensor),
            identity=bytes(16),
        )
        for start, grid, tensor in zip(
            request.starts, request.grids, request.embeddings, strict=True
        )
    )
    raw = b"".join(token.to_bytes(4, "little") for token in request.token_ids)
    return GenerateJob(
        job_id=job_id,
        token_ids=raw,
        spans=spans,
        sampling=sampling or greedy(request.max_tokens),
        seconds_left=seconds_left,
    )


def greedy(max_tokens: int, stop: tuple[int, ...] = ()) -> Sampling:
    return Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=max_tokens, stop_token_ids=stop
    )
