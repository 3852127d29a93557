"""Library models beside the engine's adapter of the same weights, and random requests for them."""

import copy
import os
import random
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor

from tests.checkpoints import TOKENS
from workers.arena import Arena, Arenas
from workers.families import Layout, load_layout
from workers.families.decoder import Decoder
from workers.families.kimi_k25 import text as kimi_text
from workers.families.plan import Backend, ImagePlan
from workers.families.qwen_vl.text import TextModel
from workers.messages import GenerateJob, Region, Span, TensorRef
from workers.sampling import Sampling

NUM_PLAIN_IDS = 760  # higher ids are special
VISION_START, VISION_END, IMAGE = 763, 764, 766
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Model:
    """The library's model and our decoder over a second copy of its text part."""

    library: Any
    decoder: Decoder
    layout: Layout

    @property
    def is_kimi(self) -> bool:
        return bool(self.library.config.model_type == "kimi_k25")


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


class CountedLayout:
    """The layout of a family whose positions count tokens, images or not."""

    family = "kimi_k25"
    image_token = "<|media_pad|>"
    image_token_id = IMAGE
    max_context_tokens = 4096
    max_resized_pixels = 0  # it plans no images

    def plan(
        self, source_size: tuple[int, int], backend: Backend, max_pixels: int | None = None
    ) -> ImagePlan:
        raise NotImplementedError

    def plan_grid(self, grid: Grid, backend: Backend) -> ImagePlan:
        raise NotImplementedError

    def positions(
        self, num_tokens: int, spans: list[tuple[int, Grid]]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
        return np.arange(num_tokens)[None], 0


def make_kimi_model(seed: int = 0, **text: Any) -> Model:
    """A random model with latent attention and experts; `text` changes its configuration."""
    torch.manual_seed(seed)
    library = transformers.Kimi_K25ForConditionalGeneration(_kimi_config(text)).eval()
    with torch.no_grad():
        for name, parameter in library.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.35 if "embed_tokens" in name else 0.12)
    own = copy.deepcopy(library)  # attention hooks must not reach the library's own copy
    decoder = kimi_text.TextModel(own.model.language_model, own.lm_head)
    return Model(library, decoder, CountedLayout())


def _kimi_config(text: dict[str, Any]) -> Any:
    yarn = {
        "rope_type": "yarn",
        "rope_theta": 5e4,
        "factor": 16.0,
        "original_max_position_embeddings": 256,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    }
    small: dict[str, Any] = {
        "vocab_size": 768,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 4096,
        "q_lora_rank": 24,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "first_k_dense_replace": 1,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "n_group": 2,
        "topk_group": 1,
        "rope_parameters": yarn,
    }
    vision = {
        "patch_size": 4,
        "hidden_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "pos_emb_height": 8,
        "pos_emb_width": 8,
    }
    return transformers.Kimi_K25Config(
        text_config={"model_type": "deepseek_v3"} | small | text,
        vision_config=vision,
        projection_hidden_size=32,
        tie_word_embeddings=False,
        # As in public checkpoints no token stands for videos; the library would embed it as 0.
        **(TOKENS | {"video_token_id": 768}),
    )


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
        side = model.library.config.vision_config.patch_size
        shape = (3, side, side) if model.is_kimi else (3 * 2 * side**2,)
        pixels.append(torch.randn(num_patches, *shape, generator=generator) * 1.5)
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


def inputs_for_library(model: Model, request: Request) -> dict[str, Tensor]:
    """Keyword arguments of the library's full model."""
    ids = torch.tensor([request.token_ids])
    inputs = {"input_ids": ids}
    if not model.is_kimi:
        inputs["mm_token_type_ids"] = (ids == IMAGE).int()
    if request.grids:
        inputs["pixel_values"] = torch.cat(request.pixels)
        inputs["image_grid_thw"] = torch.tensor(request.grids)
    return inputs


def positions_for_library(model: Model, inputs: dict[str, Tensor]) -> Tensor:
    """What `generate` would give the model for positions."""
    if model.is_kimi:
        return torch.arange(inputs["input_ids"].shape[1])[None]
    positions, _ = model.library.model.get_rope_index(
        inputs["input_ids"], inputs["mm_token_type_ids"], inputs.get("image_grid_thw")
    )
    found: Tensor = positions
    return found


def generate(model: Model, request: Request) -> list[int]:
    """The library's greedy answer; nothing stops it early."""
    output = model.library.generate(
        **inputs_for_library(model, request),
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
    salt: bytes = b"",
) -> GenerateJob:
    """The request as the engine takes it; greedy unless `sampling` says otherwise."""
    spans = tuple(
        Span(
            start=start,
            num_tokens=tensor.shape[1],
            grid=grid,
            embeddings=arenas.store(tensor),
            identity=blake2b(tensor.numpy().tobytes(), digest_size=16).digest(),
        )
        for start, grid, tensor in zip(
            request.starts, request.grids, request.embeddings, strict=True
        )
    )
    raw = b"".join(token.to_bytes(4, "little") for token in request.token_ids)
    return GenerateJob(
        job_id=job_id,
        salt=salt,
        token_ids=raw,
        spans=spans,
        sampling=sampling or greedy(request.max_tokens),
        seconds_left=seconds_left,
    )


def greedy(max_tokens: int, stop: tuple[int, ...] = ()) -> Sampling:
    return Sampling(
        temperature=0.0, top_p=1.0, top_k=0, seed=0, max_tokens=max_tokens, stop_token_ids=stop
    )
