"""Loading a Qwen-VL checkpoint: folder and roles in, the models of these roles out."""

from pathlib import Path
from typing import Any

import transformers

from workers.families import loading, read_json
from workers.families.loading import Models, Parts, Progress
from workers.families.qwen_vl.checkpoint import read_checkpoint
from workers.families.qwen_vl.text import TextModel
from workers.families.qwen_vl.vision import VisionModel

CLASS_NAMES = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
PARTS: Parts = {
    "vision": (("model", "visual"),),
    "language": (("model", "language_model"), ("", "lm_head")),
}


def load_models(
    model: Path, roles: tuple[str, ...], device: str, dtype: str, progress: Progress
) -> Models[VisionModel, TextModel]:
    """Load what `roles` need of the checkpoint at `model` onto `device`.

    Args:
        model: the checkpoint folder.
        roles: "vision", "language" or both.
        device: as torch spells it, for example "cpu" or "cuda:0".
        dtype: float32, bfloat16, float16, or auto: float32 on a CPU, else the checkpoint's own.
        progress: called as weights arrive; the last call has both numbers equal.

    Raises:
        UnsupportedCheckpoint: the folder asks for something that is not served, or its weights
            are not exactly those of the model.
    """
    loaded = load_parts(model, roles, loading.dtype_on(device, dtype), progress).to(device)
    vision = VisionModel(loaded.model.visual) if "vision" in roles else None
    return Models(vision=vision, text=_text_model(loaded) if "language" in roles else None)


def load_parts(model: Path, roles: tuple[str, ...], dtype: str, progress: Progress) -> Any:
    """The transformers model on the CPU, with None in the places that no role needs.

    Raises:
        UnsupportedCheckpoint: see `load_models`.
    """
    read_checkpoint(model)
    model_class = getattr(transformers, CLASS_NAMES[read_json(model / "config.json")["model_type"]])
    unwanted = loading.unwanted_parts(PARTS, roles)
    return loading.load_parts(model, model_class, unwanted, dtype, progress)


def _text_model(loaded: Any) -> TextModel:
    deepstack = getattr(loaded.config.vision_config, "deepstack_visual_indexes", ())
    return TextModel(loaded.model.language_model, loaded.lm_head, len(deepstack))
