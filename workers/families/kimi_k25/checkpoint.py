"""What a Kimi checkpoint's configuration files say: folder in, checked facts out; no torch.

Two spellings are read alike: transformers' own, and that of the public checkpoints, whose image
limits lie in `media_proc_cfg` and whose tower sizes have other names.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workers.families import read_json
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
from workers.families.kimi_k25.background import read_background
from workers.families.plan import Background

# What the library assumes where a file says nothing.
DEFAULT_CONTEXT_TOKENS = 4096
DEFAULT_IMAGE_TOKEN_ID = 163605
DEFAULT_MAX_PATCHES = 16384
DEFAULT_MAX_SIDE_PATCHES = 512
DEFAULT_HALF = [0.5, 0.5, 0.5]

# The public spelling -> the library's.
PUBLIC_VISION_NAMES = {
    "vt_hidden_size": "hidden_size",
    "vt_intermediate_size": "intermediate_size",
    "vt_num_attention_heads": "num_attention_heads",
    "vt_num_hidden_layers": "num_hidden_layers",
    "init_pos_emb_height": "pos_emb_height",
    "init_pos_emb_width": "pos_emb_width",
    "init_pos_emb_time": "pos_emb_time",
}
PUBLIC_PROJECTOR_NAMES = {
    "mm_hidden_size": "projection_hidden_size",
    "projector_ln_eps": "projection_layer_norm_eps",
}
# The one form of each that the library computes; files may also be silent about them.
TEXT_FORMS = {
    "model_type": ("deepseek_v3", "kimi_k2"),
    "topk_method": ("noaux_tc",),
    "scoring_func": ("sigmoid",),
    "moe_layer_freq": (1,),
}
VISION_FORMS = {
    "mm_projector_type": ("patchmerger",),
    "projector_hidden_act": ("gelu",),
    "merge_type": ("sd2_tpool",),
    "pos_emb_type": ("divided_fixed",),
}
PROCESSOR = "Kimi_K25ImageProcessor"
PROCESSOR_PREFIXES = ("Kimi_K25", "KimiK25", "KimiK3")  # one geometry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Facts that geometry and pixels need; limits in patches before padding, lengths in tokens."""

    image_token_id: int
    max_context_tokens: int
    patch_size: int
    merge_size: int
    attention_patches: int  # see the plan
    max_patches: int  # of an image
    max_side_patches: int  # of either side of it; a multiple of merge_size
    fixed_output_tokens: int | None  # of every image; None: one per merged patch
    rescale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    background: Background | None


def read_checkpoint(model: Path) -> Checkpoint:
    """Read and check the configuration files below `model`.

    Raises:
        UnsupportedCheckpoint: a file is missing, or asks for something that is not served.
    """
    config = read_config(model)
    processor = _read_processor(model)
    vision = config["vision_config"]
    side = _edge(model, processor)
    checkpoint = Checkpoint(
        image_token_id=value_of(config, "image_token_id", DEFAULT_IMAGE_TOKEN_ID),
        max_context_tokens=value_of(
            config["text_config"], "max_position_embeddings", DEFAULT_CONTEXT_TOKENS
        ),
        patch_size=value_of(processor, "patch_size", 14),
        merge_size=_square(value_of(processor, "merge_size", 2)),
        attention_patches=attention_patches(
            model,
            value_of(vision, "hidden_size", 1152),
            value_of(vision, "intermediate_size", 4304),
            num_maps=2,
        ),
        max_patches=value_of(processor, "max_patches", DEFAULT_MAX_PATCHES),
        max_side_patches=side,
        fixed_output_tokens=processor.get("fixed_output_tokens"),
        rescale=float(value_of(processor, "rescale_factor", 1 / 255)),
        mean=channels_of(model, value_of(processor, "image_mean", DEFAULT_HALF)),
        std=channels_of(model, value_of(processor, "image_std", DEFAULT_HALF)),
        background=read_background(model, processor),
    )
    _check_limits(model, checkpoint)
    _check_tower(model, config, checkpoint)
    return checkpoint


def read_config(model: Path) -> dict[str, Any]:
    """The content of config.json, checked, in the library's spelling.

    Raises:
        UnsupportedCheckpoint: the file is missing, or asks for something that is not served.
    """
    config = read_json(model / "config.json")
    text = config.get("text_config") or {}
    check_sections(model, config, text)
    vision = config.get("vision_config") or {}
    check_weights(model, config, text)
    check_rope(model, text)
    _check_forms(model, text, TEXT_FORMS)
    _check_forms(model, vision, VISION_FORMS)
    height, width = (_renamed(vision).get(f"pos_emb_{side}", 64) for side in ("height", "width"))
    if height != width:
        refuse(model, f"a position table of {height} x {width}", "a square one")
    return _in_library_spelling(config)


def _in_library_spelling(config: dict[str, Any]) -> dict[str, Any]:
    public_vision = config.get("vision_config") or {}
    text = config["text_config"]
    vision = _renamed(public_vision) | {"model_type": "kimi_k25_vision"}
    derived = {
        "image_token_id": config.get("media_placeholder_token_id"),
        # The library takes its own width for this one, and ties words unless it is told not to.
        "projection_hidden_size": vision.get("hidden_size"),
        "tie_word_embeddings": text.get("tie_word_embeddings"),
    }
    derived |= {new: public_vision.get(old) for old, new in PUBLIC_PROJECTOR_NAMES.items()}
    known = {name: value for name, value in derived.items() if value is not None}
    return known | config | {"vision_config": vision}


def _renamed(vision: dict[str, Any]) -> dict[str, Any]:
    return {PUBLIC_VISION_NAMES.get(name, name): value for name, value in vision.items()}


def _read_processor(model: Path) -> dict[str, Any]:
    """The image processor's section, in the library's spelling."""
    processor = read_processor(model)
    name = str(value_of(processor, "image_processor_type", PROCESSOR))
    if not name.startswith(PROCESSOR_PREFIXES):
        refuse(model, f"image_processor_type {name!r}", PROCESSOR)
    public = processor.get("media_proc_cfg")
    if public is None:
        check_steps(model, processor)
        return processor
    if not isinstance(public, dict):
        refuse(model, "media_proc_cfg of this type", "an object")
    edge = value_of(public, "patch_limit_on_one_side", DEFAULT_MAX_SIDE_PATCHES)
    return public | {
        "max_patches": public.get("in_patch_limit"),
        "merge_size": public.get("merge_kernel_size"),
        "size": {"max_height": edge, "max_width": edge},
    }


def _edge(model: Path, processor: dict[str, Any]) -> int:
    """Most patches of a side, before padding; `size` counts patches, not pixels."""
    default = DEFAULT_MAX_SIDE_PATCHES
    size = value_of(processor, "size", {"max_height": default, "max_width": default})
    height, width = (
        size.get(name) if isinstance(size, dict) else None for name in ("max_height", "max_width")
    )
    if not isinstance(height, int) or height != width:
        refuse(model, f"image size {size!r}", "equal whole numbers max_height and max_width")
    return height


def _square(kernel: Any) -> Any:
    """A square kernel's side, from its side or from both."""
    if isinstance(kernel, list) and len(kernel) == 2 and kernel[0] == kernel[1]:
        return kernel[0]
    return kernel


def _check_forms(model: Path, section: dict[str, Any], forms: dict[str, tuple[Any, ...]]) -> None:
    for name, known in forms.items():
        if value_of(section, name, known[0]) not in known:
            refuse(model, f"{name} {section[name]!r}", " or ".join(map(repr, known)))


def _check_limits(model: Path, checkpoint: Checkpoint) -> None:
    numbers = {
        "patch_size": checkpoint.patch_size,
        "merge_size": checkpoint.merge_size,
        "max_patches": checkpoint.max_patches,
        "max_height": checkpoint.max_side_patches,
        "fixed_output_tokens": checkpoint.fixed_output_tokens,
    }
    for name, number in numbers.items():
        if number is None and name == "fixed_output_tokens":
            continue
        if not isinstance(number, int) or number < 1:
            refuse(model, f"{name} {number!r}", "a positive whole number")
    if checkpoint.max_side_patches % checkpoint.merge_size:
        refuse(
            model,
            f"a limit of {checkpoint.max_side_patches} patches on a side, which padding exceeds",
            f"a multiple of {checkpoint.merge_size}",
        )


def _check_tower(model: Path, config: dict[str, Any], checkpoint: Checkpoint) -> None:
    """The processor must cut patches as the vision tower expects them."""
    vision = config["vision_config"]
    tower = (
        value_of(vision, "patch_size", 14),
        _square(value_of(vision, "merge_kernel_size", [2, 2])),
    )
    cut = (checkpoint.patch_size, checkpoint.merge_size)
    if tower != cut:
        refuse(
            model,
            f"a processor that cuts (patch, merge) {cut} for a tower that takes {tower}",
            "equal whole numbers",
        )
