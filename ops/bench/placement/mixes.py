"""What people send: the name of a mix and a seed in, plans of plausible images out.

Sizes go through real layouts: Qwen2.5-VL's and Kimi-K2.5's, as their public checkpoints have them.
"""

import random
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType

from workers.families.kimi_k25 import checkpoint as kimi
from workers.families.kimi_k25.layout import KimiLayout
from workers.families.plan import ImagePlan, Size
from workers.families.qwen_vl import checkpoint as qwen
from workers.families.qwen_vl.layout import QwenLayout

Shares = Mapping[Size, float]  # (height, width) in pixels -> how often

SCREENSHOTS: Shares = {
    (1080, 1920): 0.3,
    (1440, 2560): 0.15,
    (900, 1440): 0.1,
    (2160, 3840): 0.05,
    (2532, 1170): 0.25,
    (2400, 1080): 0.15,
}
PHOTOS: Shares = {
    (3024, 4032): 0.5,
    (4032, 3024): 0.25,
    (2250, 4000): 0.1,
    (1200, 1600): 0.1,  # by way of a messenger
    (6120, 8160): 0.05,
}
THUMBNAILS: Shares = {
    (150, 150): 0.25,
    (240, 320): 0.25,
    (256, 256): 0.2,
    (300, 480): 0.2,
    (64, 64): 0.1,
}
DOCUMENTS: Shares = {
    (1754, 1240): 0.4,  # A4 at 150 dots per inch
    (2339, 1654): 0.35,
    (3508, 2480): 0.15,
    (400, 1100): 0.1,  # a cut-out
}


def _blend(*parts: tuple[float, Shares]) -> Shares:
    return {size: weight * share for weight, part in parts for size, share in part.items()}


MIXES: Mapping[str, Shares] = MappingProxyType(
    {
        "screenshots": SCREENSHOTS,
        "photos": PHOTOS,
        "thumbnails": THUMBNAILS,
        "documents": DOCUMENTS,
        "chat": _blend(
            (0.4, SCREENSHOTS), (0.25, PHOTOS), (0.25, THUMBNAILS), (0.1, DOCUMENTS)
        ),
        "photo and thumbnails": _blend((0.1, PHOTOS), (0.9, THUMBNAILS)),
    }
)  # fmt: skip

CROPPED = 0.3  # share of images that someone has cut, by up to half of each side


def draw_sizes(mix: str, count: int, source: random.Random) -> list[Size]:
    """Sizes of `count` images."""
    sizes = list(MIXES[mix])
    drawn = source.choices(sizes, list(MIXES[mix].values()), k=count)
    return [_cropped(size, source) if source.random() < CROPPED else size for size in drawn]


def _cropped(size: Size, source: random.Random) -> Size:
    height, width = size
    return round(height * source.uniform(0.5, 1)), round(width * source.uniform(0.5, 1))


QWEN = QwenLayout(
    family="qwen_vl",
    image_token="<|image_pad|>",
    image_token_id=151655,
    max_context_tokens=128000,
    checkpoint=qwen.Checkpoint(
        image_token_id=151655,
        max_context_tokens=128000,
        patch_size=14,
        temporal_patch_size=2,
        merge_size=2,
        attention_patches=61520,
        min_pixels=56 * 56,
        max_pixels=28 * 28 * 16384,
        rescale=1 / 255,
        mean=(0.48145466, 0.4578275, 0.40821073),
        std=(0.26862954, 0.26130258, 0.27577711),
    ),
)
KIMI = KimiLayout(
    family="kimi_k25",
    image_token="<|media_pad|>",
    image_token_id=163605,
    max_context_tokens=262144,
    checkpoint=kimi.Checkpoint(
        image_token_id=163605,
        max_context_tokens=262144,
        patch_size=14,
        merge_size=2,
        attention_patches=6608,
        max_patches=16384,
        max_side_patches=512,
        fixed_output_tokens=None,
        rescale=1 / 255,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
        background=None,
    ),
)


@lru_cache(maxsize=4096)
def qwen_plan(size: Size) -> ImagePlan:
    """As Qwen2.5-VL's public checkpoints do: up to 65536 patches, most layers in windows."""
    return QWEN.plan(size, "cpu")


@lru_cache(maxsize=4096)
def kimi_plan(size: Size) -> ImagePlan:
    """As Kimi-K2.5's public checkpoints do: about 16384 patches, at most 512 on a side."""
    return KIMI.plan(size, "cpu")


GEOMETRIES: Mapping[str, Callable[[Size], ImagePlan]] = MappingProxyType(
    {"qwen2_5_vl": qwen_plan, "kimi_k25": kimi_plan}
)
