"""What a Qwen-VL checkpoint's configuration files say: folder in, checked facts out; no torch.

Old and new spellings are read alike: text fields nested or at the top, size limits in pixels or
as edges, the image processor in a file of its own or inside processor_config.json.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.families import FAMILIES, read_json
from workers.families.config_files import (
    attention_patches,
    channels_of,
    check_rope,
    check_sections,
    check_steps,
    check_weights,
    read_processor,
    refuse,
    value_of,
)

# What the library assumes where a file says nothing.
DEFAULT_CONTEXT_TOKENS = {"qwen2_vl": 32768, "qwen2_5_vl": 32768, "qwen3_vl": 128000}
DEFAULT_TOWER_PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}
DEFAULT_TOWERS: dict[str, dict[str, Any]] = {
    "qwen2_vl": {"embed_dim": 1280, "mlp_ratio": 4},
    "qwen2_5_vl": {
        "hidden_size": 3584,
        "intermediate_size": 3420,
        "depth": 32,
        "fullatt_block_indexes": (7, 15, 23, 31),
    },
    "qwen3_vl": {"hidden_size": 1152, "intermediate_size": 4304},
}
DEFAULT_SIZE = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
DEFAULT_MEAN = [0.48145466, 0.4578275, 0.40821073]
DEFAULT_STD = [0.26862954, 0.26130258, 0.27577711]
DEFAULT_IMAGE_TOKEN_ID = 151655


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts that geometry and pixels need; areas in pixels, lengths in tokens."""

    image_token_id: int
    max_context_tokens: int
    patch_size: int
    temporal_patch_size: int
    merge_size: int
    attention_patches: int  # see the plan
    min_pixels: int
    max_pixels: int
    rescale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


def read_checkpoint(model: Path) -> Checkpoint:
    """Read and check the configuration files below `model`.

    Raises:
        UnsupportedCheckpoint: a file is missing, or asks for something that is not served.
    """
    config = read_json(model / "config.json")
    text = config.get("text_config") or config  # early checkpoints have no nesting
    check_sections(model, config, text)
    processor = read_processor(model)
    _check_model(model, config, text)
    _check_processor(model, processor)
    min_pixels, max_pixels = _limits(model, processor)
    checkpoint = Checkpoint(
        image_token_id=value_of(config, "image_token_id", DEFAULT_IMAGE_TOKEN_ID),
        max_context_tokens=value_of(
            text, "max_position_embeddings", DEFAULT_CONTEXT_TOKENS[config["model_type"]]
        ),
        patch_size=value_of(processor, "patch_size", 14),
        temporal_patch_size=value_of(processor, "temporal_patch_size", 2),
        merge_size=value_of(processor, "merge_size", 2),
        attention_patches=_attention_patches(model, config),
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        rescale=float(value_of(processor, "rescale_factor", 1 / 255)),
        mean=channels_of(model, value_of(processor, "image_mean", DEFAULT_MEAN)),
        std=channels_of(model, value_of(processor, "image_std", DEFAULT_STD)),
    )
    _check_tower(model, config, checkpoint)
    return checkpoint


def _limits(model: Path, processor: dict[str, Any]) -> tuple[int, int]:
    """Least and most pixels after resizing."""
    size = value_of(processor, "size", DEFAULT_SIZE)
    edges = size if isinstance(size, dict) else {}
    least = value_of(processor, "min_pixels", edges.get("shortest_edge"))
    most = value_of(processor, "max_pixels", edges.get("longest_edge"))
    if not isinstance(least, int) or not isinstance(most, int) or not 0 < least <= most:
        refuse(
            model,
            f"image size limits {size!r} (min_pixels {least!r}, max_pixels {most!r})",
            "positive whole min_pixels and max_pixels, or shortest_edge and longest_edge",
        )
    return least, most


def _attention_patches(model: Path, config: dict[str, Any]) -> int:
    model_type, given = config["model_type"], config.get("vision_config") or {}
    tower = DEFAULT_TOWERS[model_type] | {
        name: value for name, value in given.items() if value is not None
    }
    if model_type == "qwen2_vl":
        width, ratio = tower["embed_dim"], tower["mlp_ratio"]
        inner = int(width * ratio) if isinstance(ratio, int | float) else ratio
        return attention_patches(model, width, inner, num_maps=2)
    width, inner = tower["hidden_size"], tower["intermediate_size"]
    if model_type == "qwen3_vl":
        return attention_patches(model, width, inner, num_maps=2)
    share = max(1, len(tower["fullatt_block_indexes"])) / tower["depth"]
    return attention_patches(model, width, inner, num_maps=3, share=share)


def _check_model(model: Path, config: dict[str, Any], text: dict[str, Any]) -> None:
    if config.get("model_type") not in FAMILIES:
        refuse(model, f"model_type {config.get('model_type')!r}", ", ".join(sorted(FAMILIES)))
    check_weights(model, config, text)
    check_rope(model, text)
    sliding = text.get("use_sliding_window") or any(
        layer != "full_attention" for layer in text.get("layer_types") or ()
    )
    if sliding:
        refuse(model, "attention over a sliding window", "full attention in every layer")


def _check_processor(model: Path, processor: dict[str, Any]) -> None:
    name = str(value_of(processor, "image_processor_type", "Qwen2VLImageProcessor"))
    if not name.startswith(("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")):
        refuse(model, f"image_processor_type {name!r}", "Qwen2VLImageProcessor")
    check_steps(model, processor)


def _check_tower(model: Path, config: dict[str, Any], checkpoint: Checkpoint) -> None:
    """The processor must cut patches as the vision tower expects them."""
    vision = config.get("vision_config") or {}
    tower = (
        value_of(vision, "patch_size", DEFAULT_TOWER_PATCH[config["model_type"]]),
        value_of(vision, "temporal_patch_size", 2),
        value_of(vision, "spatial_merge_size", 2),
    )
    cut = (checkpoint.patch_size, checkpoint.temporal_patch_size, checkpoint.merge_size)
    if tower != cut or not all(isinstance(length, int) for length in cut):
        refuse(
            model,
            f"a processor that cuts (patch, frames, merge) {cut} for a tower that takes {tower}",
            "equal whole numbers",
        )
