"""Loading a Kimi checkpoint: folder and roles in, the models of these roles out."""

from pathlib import Path
from typing import Any

import transformers

from workers.families import loading
from workers.families.config_files import refuse
from workers.families.kimi_k25.checkpoint import read_checkpoint, read_config
from workers.families.kimi_k25.text import TextModel
from workers.families.kimi_k25.vision import VisionModel
from workers.families.loading import Models, Parts, Progress

PARTS: Parts = {
    "vision": (("model", "vision_tower"), ("model", "mm_projector")),
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
    inner = loaded.model
    return Models(
        vision=VisionModel(inner.vision_tower, inner.mm_projector) if "vision" in roles else None,
        text=TextModel(inner.language_model, loaded.lm_head) if "language" in roles else None,
    )


def load_parts(model: Path, roles: tuple[str, ...], dtype: str, progress: Progress) -> Any:
    """The transformers model on the CPU, with None in the places that no role needs.

    Raises:
        UnsupportedCheckpoint: see `load_models`.
    """
    if read_checkpoint(model).fixed_output_tokens is not None:
        # A layout can plan with it, but the library's tower gives one per merged patch.
        refuse(model, "fixed_output_tokens", "as many tokens as an image's size asks for")
    with loading.faults_named(model):
        config = transformers.Kimi_K25Config.from_dict(read_config(model))
    return loading.load_parts(
        model,
        transformers.Kimi_K25ForConditionalGeneration,
        loading.unwanted_parts(PARTS, roles),
        dtype,
        progress,
        config=config,
    )
