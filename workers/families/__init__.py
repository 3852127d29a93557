"""Registry of model families: which folder knows a checkpoint's `model_type`.

A family is a folder. Its `layout` and `answers` are torch-free: the first runs in the gateway and
in the engine, the second in the gateway. `load`, `vision` and `text` run in workers.
"""

import importlib
import json
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from workers.families.answers import AnswerForm
from workers.families.plan import Backend, ImagePlan

FAMILIES: dict[str, str] = {  # model_type in config.json -> folder
    "qwen2_vl": "qwen_vl",
    "qwen2_5_vl": "qwen_vl",
    "qwen3_vl": "qwen_vl",
    "kimi_k25": "kimi_k25",
}


class UnsupportedCheckpoint(Exception):
    """The folder is not a checkpoint that can be served; the message says why and what can."""


class ImageShapeError(Exception):
    """A caller's image has a shape that the family cannot take; the message gives the numbers."""


class Layout(Protocol):
    """Geometry and prompt form of one checkpoint; pure arithmetic, no torch."""

    family: str
    image_token: str  # the placeholder text in rendered templates, once per image
    image_token_id: int
    max_context_tokens: int  # what the checkpoint allows

    @property
    def max_resized_pixels(self) -> int:
        """Upper bound of height times width after resizing, whatever the image."""
        ...

    def plan(
        self, source_size: tuple[int, int], backend: Backend, max_pixels: int | None = None
    ) -> ImagePlan:
        """Plan an image from its displayed (height, width), in pixels.

        With `max_pixels`, as if the checkpoint's own limit after resizing were no higher.

        Raises:
            ImageShapeError: the family cannot take this shape.
        """
        ...

    def plan_grid(self, grid: tuple[int, int, int], backend: Backend) -> ImagePlan:
        """Plan an image that comes as patches or embeddings, from its grid before merging.

        Whatever grid `plan` gives is taken. Its padded size stands for the sizes that are not
        known; `plan` of that size may give another grid, because padding may exceed a limit that
        the picture was shrunk to.

        Raises:
            ImageShapeError: no image has this grid; the message says what the family allows.
        """
        ...

    def positions(
        self, num_tokens: int, spans: list[tuple[int, tuple[int, int, int]]]
    ) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
        """Rotary positions of a prompt whose images start at `spans` (first token, grid).

        Returns:
            positions int64 [axes, num_tokens], and the offset that turns the index of a later
            token into its position on every axis.
        """
        ...


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object of a checkpoint.

    Raises:
        UnsupportedCheckpoint: the file is missing or is no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UnsupportedCheckpoint(f"cannot read {path}: {reason}") from error
    if not isinstance(value, dict):
        raise UnsupportedCheckpoint(f"{path} holds no JSON object")
    return value


def family_of(model: Path) -> str:
    """The folder that serves the checkpoint at `model`.

    Raises:
        UnsupportedCheckpoint: no config.json, or a model_type that no family serves.
    """
    if not model.is_dir():
        raise UnsupportedCheckpoint(
            f"FOVEA_MODEL={model}: no such folder; download the checkpoint and give its folder"
        )
    model_type = read_json(model / "config.json").get("model_type")
    if model_type not in FAMILIES:
        supported = ", ".join(sorted(FAMILIES))
        raise UnsupportedCheckpoint(
            f"{model}: model_type {model_type!r} is not supported; supported are {supported}"
        )
    return FAMILIES[model_type]


def load_layout(model: Path) -> Layout:
    """The layout of the checkpoint at `model`, read from its configuration files alone.

    Raises:
        UnsupportedCheckpoint: see `family_of`, or the family refuses a feature of it.
    """
    module = importlib.import_module(f"workers.families.{family_of(model)}.layout")
    layout: Layout = module.read_layout(model)
    return layout


def load_answer_form(model: Path, template: str) -> AnswerForm:
    """How the checkpoint at `model` answers, as the source of its chat template tells.

    Raises:
        UnsupportedCheckpoint: see `family_of`.
    """
    module = importlib.import_module(f"workers.families.{family_of(model)}.answers")
    form: AnswerForm = module.read_answer_form(template)
    return form
