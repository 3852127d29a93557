"""Configuration files of a checkpoint: what every family asks of them, and how it refuses."""

from pathlib import Path
from typing import Any, NoReturn

from workers.families import UnsupportedCheckpoint, read_json

ROPE_TYPES = ("default", "mrope", "linear", "yarn", "llama3")  # angles depend on nothing else
STEPS = ("do_resize", "do_rescale", "do_normalize", "do_convert_rgb")
BICUBIC = 3
SIZES = ("hidden_size", "num_hidden_layers")  # of the text model


def refuse(model: Path, found: str, supported: str) -> NoReturn:
    """Raise `UnsupportedCheckpoint`, naming what the folder asks for and what it could ask for."""
    raise UnsupportedCheckpoint(f"{model}: {found} is not supported; supported is {supported}")


def value_of(section: dict[str, Any], name: str, default: Any) -> Any:
    """The value under `name`; null means absent, as it does for the library."""
    value = section.get(name)
    return default if value is None else value


def channels_of(model: Path, value: Any) -> tuple[float, float, float]:
    """One value per channel, from three or from one for all."""
    try:
        red, green, blue = map(float, value if isinstance(value, list) else [value] * 3)
    except (TypeError, ValueError):
        refuse(model, f"image_mean or image_std {value!r}", "one number or three")
    return red, green, blue


def read_processor(model: Path) -> dict[str, Any]:
    """The image processor's section, in a file of its own or inside processor_config.json."""
    nested = model / "processor_config.json"
    if nested.exists():
        section = read_json(nested).get("image_processor")
        if isinstance(section, dict):  # wins over the other file, as in the library
            return section
    return read_json(model / "preprocessor_config.json")


def attention_patches(model: Path, width: Any, inner: Any, num_maps: int, share: float = 1) -> int:
    """Patches of an image for which attention takes a tower as long as everything else.

    Counted in multiplications for one patch. In every layer: four maps of `width` to itself, and
    `num_maps` between `width` and `inner`. In a `share` of the layers: twice the width for each
    patch of the image; the others attend to a small window, which is neglected.
    """
    for length in (width, inner):
        if not isinstance(length, int) or length < 1:
            refuse(model, f"a vision tower of width {length!r}", "a positive whole number")
    return int((4 * width + num_maps * inner) / (2 * share))


def check_sections(model: Path, config: dict[str, Any], text: dict[str, Any]) -> None:
    """Refuse what the library would fill with its defaults, which may be a far larger model."""
    for name in ("text_config", "vision_config"):
        if not isinstance(config.get(name) or {}, dict):
            refuse(model, f"config.json: {name} of this type", "an object")
    for name in SIZES:
        if not isinstance(text.get(name), int):
            refuse(model, f"config.json: {name} {text.get(name)!r}", "a whole number")


def check_weights(model: Path, *sections: dict[str, Any]) -> None:
    """Refuse quantised weights, named by the first section that has any."""
    for section in sections:
        quantisation = section.get("quantization_config")
        if quantisation:
            method = quantisation.get("quant_method", "unnamed")
            refuse(model, f"quantised weights ({method})", "float32, bfloat16 and float16")


def check_rope(model: Path, text: dict[str, Any]) -> None:
    """Refuse angles that change with the longest prompt of a batch, as dynamic and longrope do."""
    rope = text.get("rope_parameters") or text.get("rope_scaling") or {}
    rope_type = rope.get("rope_type") or rope.get("type") or "default"
    if rope_type not in ROPE_TYPES:
        refuse(model, f"rope type {rope_type!r}", ", ".join(ROPE_TYPES))


def check_steps(model: Path, processor: dict[str, Any]) -> None:
    """Refuse an image processor that leaves a step out or resizes in another way."""
    for step in STEPS:
        if not value_of(processor, step, True):
            refuse(model, f"{step} switched off", "resize, rescale, normalise and convert")
    if value_of(processor, "resample", BICUBIC) != BICUBIC:
        refuse(model, f"resample {processor['resample']!r}", f"bicubic ({BICUBIC})")
