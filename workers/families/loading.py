"""Loading checkpoints with transformers: folder and unwanted parts in, the other modules out.

transformers does the reading, because it knows old and new spellings of the weights. Here it is
kept from building the half that a worker does not need, and from inventing missing weights.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from workers.families import UnsupportedCheckpoint

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
Part = tuple[str, str]  # path of a module's parent, "" for the model itself; its name there
Parts = dict[str, tuple[Part, ...]]  # what each role is made of

Vision = TypeVar("Vision", covariant=True)
Text = TypeVar("Text", covariant=True)


@dataclass(frozen=True, slots=True)
class Models(Generic[Vision, Text]):
    """The loaded halves; None for a role that was not asked for."""

    vision: Vision | None
    text: Text | None


def load_parts(
    model: Path,
    model_class: Any,
    unwanted: Iterable[Part],
    dtype: str,
    progress: Progress,
    **options: Any,
) -> Any:
    """The transformers model on the CPU, with None in the places of unwanted parts.

    Args:
        model: the checkpoint folder.
        model_class: of transformers, with its `lm_head` at the top.
        unwanted: parts that take no memory and whose weights are not read.
        dtype: float32, bfloat16, float16, or auto: the checkpoint's own.
        progress: called as weights arrive; the last call has both numbers equal.
        options: handed on to `from_pretrained`.

    Raises:
        UnsupportedCheckpoint: the weights cannot be read, or are not exactly those of the model.
    """
    with faults_named(model), _reporting(progress):
        loaded, report = _without(model_class, list(unwanted)).from_pretrained(
            model,
            dtype=dtype,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused by name below
            **options,
        )
    _check_complete(model, report)
    return loaded.requires_grad_(False)


@contextlib.contextmanager
def faults_named(model: Path) -> Iterator[None]:
    """Turn what the libraries let out into one line that names the folder.

    Raises:
        UnsupportedCheckpoint: the body raised one of `FAULTS`.
    """
    try:
        yield
    except FAULTS as error:
        reason = " ".join(str(error).split())[:MAX_REASON_CHARACTERS]
        raise UnsupportedCheckpoint(f"{model}: cannot load the weights: {reason}") from error


def unwanted_parts(parts: Parts, roles: tuple[str, ...]) -> list[Part]:
    """The parts of the roles that are not asked for."""
    return [part for role, those in parts.items() if role not in roles for part in those]


def dtype_on(device: str, dtype: str) -> str:
    """What "auto" means: float32 on a CPU, else the checkpoint's own; others as they are."""
    return "float32" if dtype == "auto" and device == "cpu" else dtype


def _without(parent: Any, parts: list[Part]) -> Any:
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

    # The library puts the owner in front of early names only where it finds the part.
    patterns = [rf"^(?:{owner}\.)?{name}\." for owner, name in parts]
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
