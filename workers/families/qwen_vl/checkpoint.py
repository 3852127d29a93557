"""What a Qwen-VL checkpoint's configuration files say: folder in, checked facts out; no torch.

Old and new spellings are read alike: text fields nested or at the top, size limits in pixels or
as edges, the image processor in a file of its own or inside processor_config.json.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from workers.families import FAMILIES, UnsupportedCheckpoint, read_json

ROPE_TYPES = ("default", "mrope", "linear", "yarn", "llama3")  # angles depend on nothing else
STEPS = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb")
BICUBIC = 3
SIZES = ("hidden_size", "num_hidden_layers")  # of the text model

# What the library assumes where a file says nothing.
DEFAULT_CONTEXT_TOKENS = {"qwen2_vl": 32768, "qwen2_5_vl": 32768, "qwen3_vl": 128000}
DEFAULT_TOWER_PATCH = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}
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
    _check_sections(model, config)
    processor = _read_processor(model)
    text = config.get("text_config") or config  # early checkpoints have no nesting
    _check_model(model, config, text)
    _check_processor(model, processor)
    min_pixels, max_pixels = _limits(model, processor)
    checkpoint = Checkpoint(
        image_token_id=_get(config, "image_token_id", DEFAULT_IMAGE_TOKEN_ID),
        max_context_tokens=_get(
            text, "max_position_embeddings", DEFAULT_CONTEXT_TOKENS[config["model_type"]]
        ),
        patch_size=_get(processor, "patch_size", 14),
        temporal_patch_size=_get(processor, "temporal_patch_size", 2),
        merge_size=_get(processor, "merge_size", 2),
        min_pixels=min_pixels,
        max_pixels=max_pixels,
        rescale=float(_get(processor, "rescale_factor", 1 / 255)),
        mean=_channels(model, _get(processor, "image_mean", DEFAULT_MEAN)),
        std=_channels(model, _get(processor, "image_std", DEFAULT_STD)),
    )
    _check_tower(model, config, checkpoint)
    return checkpoint


def _get(section: dict[str, Any], name: str, default: Any) -> Any:
    """The value under `name`; null means absent, as it does for the library."""
    value = section.get(name)
    return default if value is None else value


def _channels(model: Path, value: Any) -> tuple[float, float, float]:
    """One value per channel, from three or from one for all."""
    try:
        red, green, blue = map(float, value if isinstance(value, list) else [value] * 3)
    except (TypeError, ValueError):
        _refuse(model, f"image_mean or image_std {value!r}", "one number or three")
    return red, green, blue


def _read_processor(model: Path) -> dict[str, Any]:
    nested = model / "processor_config.json"
    if nested.exists():
        section = read_json(nested).get("image_processor")
        if isinstance(section, dict):  # wins over the other file, as in the library
            return section
    return read_json(model / "preprocessor_config.json")


def _limits(model: Path, processor: dict[str, Any]) -> tuple[int, int]:
    """Least and most pixels after resizing."""
    size = _get(processor, "size", DEFAULT_SIZE)
    edges = size if isinstance(size, dict) else {}
    least = _get(processor, "min_pixels", edges.get("shortest_edge"))
    most = _get(processor, "max_pixels", edges.get("longest_edge"))
    if not isinstance(least, int) or not isinstance(most, int) or not 0 < least <= most:
        _refuse(
            model,
            f"image size limits {size!r} (min_pixels {least!r}, max_pixels {most!r})",
            "positive whole min_pixels and max_pixels, or shortest_edge and longest_edge",
        )
    return least, most


def _check_sections(model: Path, config: dict[str, Any]) -> None:
    """Refuse what the library would fill with its defaults, which may be a far larger model."""
    for name in ("text_config", "vision_config"):
        if not isinstance(config.get(name) or {}, dict):
            _refuse(model, f"config.json: {name} of this type", "an object")
    text = config.get("text_config") or config
    for name in SIZES:
        if not isinstance(text.get(name), int):
            _refuse(model, f"config.json: {name} {text.get(name)!r}", "a whole number")


def _check_model(model: Path, config: dict[str, Any], text: dict[str, Any]) -> None:
    if config.get("model_type") not in FAMILIES:
        _refuse(model, f"model_type {config.get('model_type')!r}", ", ".join(sorted(FAMILIES)))
    quantisation = config.get("quantization_config") or text.get("quantization_config")
    if quantisation:
        method = quantisation.get("quant_method", "unnamed")
        _refuse(model, f"quantised weights ({method})", "float32, bfloat16 and float16")
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        # dynamic and longrope angles change with the longest prompt of a batch.
        _refuse(model, f"rope type {rope_type!r}", ", ".join(ROPE_TYPES))
    sliding = text.get("use_sliding_window") or any(
        layer != "full_attention" for layer in text.get("layer_types") or ()
    )
    if sliding:
        _refuse(model, "attention over a sliding window", "full attention in every layer")


def _check_processor(model: Path, processor: dict[str, Any]) -> None:
    name = str(_get(processor, "image_processor_type", "Qwen2VLImageProcessor"))
    if not name.startswith(("Qwen2VL", "Qwen2_5_VL", "Qwen3VL")):
        _refuse(model, f"image_processor_type {name!r}", "Qwen2VLImageProcessor")
    for step in STEPS:
        if not _get(processor, step, True):
            _refuse(model, f"{step} switched off", "resize, rescale, normalise and convert")
    if _get(processor, "resample", BICUBIC) != BICUBIC:
        _refuse(model, f"resample {processor['resample']!r}", f"bicubic ({BICUBIC})")


def _check_tower(model: Path, config: dict[str, Any], checkpoint: Checkpoint) -> None:
    """The processor must cut patches as the vision tower expects them."""
    vision = config.get("vision_config") or {}
    tower = (
        _get(vision, "patch_size", DEFAULT_TOWER_PATCH[config["model_type"]]),
        _get(vision, "temporal_patch_size", 2),
        _get(vision, "spatial_merge_size", 2),
    )
    cut = (checkpoint.patch_size, checkpoint.temporal_patch_size, checkpoint.merge_size)
    if tower != cut or not all(isinstance(length, int) for length in cut):
        _refuse(
            model,
            f"a processor that cuts (patch, frames, merge) {cut} for a tower that takes {tower}",
            "equal whole numbers",
        )


def _refuse(model: Path, found: str, supported: str) -> NoReturn:
    raise UnsupportedCheckpoint(f"{model}: {found} is not supported; supported is {supported}")
