"""Loading a Qwen-VL checkpoint: folder and roles in, the models of these roles out.

transformers does the reading, because it knows old and new spellings of the weights. Here it is
kept from building the half that a worker does not need, and from inventing missing weights.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from workers.families import UnsupportedCheckpoint, read_json
from workers.families.qwen_vl.checkpoint import read_checkpoint
from workers.families.qwen_vl.text import TextModel
from workers.families.qwen_vl.vision import VisionModel

# What the libraries let out when a file is missing, damaged or of a wrong form.
FAULTS = (
    LookupError,
    OSError,
    RuntimeError,
    SafetensorError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
MAX_REASON_CHARACTERS = 300

Progress = Callable[[int, int], None]  # weights that are loaded, weights in all

CLASS_NAMES = {
    "qwen2_vl": "Qwen2VLForConditionalGeneration",
    "qwen2_5_vl": "Qwen2_5_VLForConditionalGeneration",
    "qwen3_vl": "Qwen3VLForConditionalGeneration",
}
# What each role is made of: path of the module's parent, and its name there.
PARTS = {
    "vision": (("model", "visual"),),
    "language": (("model", "language_model"), ("", "lm_head")),
}


@dataclass(frozen=True, slots=True)
class Models:
    """The loaded halves; None for a role that was not asked for."""

    vision: VisionModel | None
    text: TextModel | None


def load_models(
    model: Path, roles: tuple[str, ...], device: str, dtype: str, progress: Progress
) -> Models:
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
    if dtype == "auto" and device == "cpu":
        dtype = "float32"
    loaded = load_parts(model, roles, dtype, progress).to(device)
    vision = VisionModel(loaded.model.visual) if "vision" in roles else None
    return Models(vision=vision, text=_text_model(loaded) if "language" in roles else None)


def load_parts(model: Path, roles: tuple[str, ...], dtype: str, progress: Progress) -> Any:
    """The transformers model on the CPU, with None in the places that no role needs.

    Raises:
        UnsupportedCheckpoint: see `load_models`.
    """
    read_checkpoint(model)
    model_type = read_json(model / "config.json")["model_type"]
    model_class = _without(
        getattr(transformers, CLASS_NAMES[model_type]),
        [part for role, parts in PARTS.items() if role not in roles for part in parts],
    )
    try:
        with _reporting(progress):
            loaded, report = model_class.from_pretrained(
                model,
                dtype=dtype,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # refused by name below
            )
    except FAULTS as error:
        reason = " ".join(str(error).split())[:MAX_REASON_CHARACTERS]
        raise UnsupportedCheckpoint(f"{model}: cannot load the weights: {reason}") from error
    _check_complete(model, report)
    return loaded.requires_grad_(False)


def _text_model(loaded: Any) -> TextModel:
    deepstack = getattr(loaded.config.vision_config, "deepstack_visual_indexes", ())
    return TextModel(loaded.model.language_model, loaded.lm_head, len(deepstack))


def _without(parent: Any, parts: list[tuple[str, str]]) -> Any:
    """A class that loads like `parent` but never has the weights of `parts`.

    The library builds modules without memory first and fills them later, so a part that is taken
    out in between costs nothing. It finds the conversion of old checkpoints by the class's name
    and takes it for foreign code by its module; so both stay the parent's.
    """
    if not parts:
        return parent

    def initialise(self: Any, config: Any) -> None:
        parent.__init__(self, config)
        for owner, name in parts:
            setattr(self.get_submodule(owner), name, None)
        if self.lm_head is None:
            self.all_tied_weights_keys = {}  # nothing is left to be tied

    patterns = [rf"^{owner}\.?{name}\." for owner, name in parts]
    members = {
        "__module__": parent.__module__,
        "__init__": initialise,
        "_keys_to_ignore_on_load_unexpected": patterns,
    }
    return type(parent.__name__, (parent,), members)


def _check_complete(model: Path, report: dict[str, Any]) -> None:
    """Refuse weights that are absent (the library fills them at random) or left over."""
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = sorted(map(str, report[problem]))
        if names:
            shown = ", ".join(names[:5])
            raise UnsupportedCheckpoint(
                f"{model}: {len(names)} {problem.replace('_', ' ')} among the weights: {shown}; "
                f"supported are checkpoints with exactly the model's weights"
            )


@contextlib.contextmanager
def _reporting(progress: Progress) -> Iterator[None]:
    """Send the library's progress to `progress` instead of drawing bars on stderr."""

    def hook(_factory: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        if keywords.get("desc") == "Loading weights":
            return _counted(args[0], progress)
        return transformers_logging.EmptyTqdm(*args, **keywords)

    previous = transformers_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        transformers_logging.set_tqdm_hook(previous)


def _counted(items: Any, progress: Progress) -> Iterable[Any]:
    for done, item in enumerate(items):
        progress(done, len(items))
        yield item
    progress(len(items), len(items))
