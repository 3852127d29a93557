"""How much memory the weights of a checkpoint will take, from the heads of their files alone."""

import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

from safetensors import safe_open

from config.workers import WorkerSpec
from workers.families import read_json

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_VISION = re.compile(r"vis(ual|ion)|mm_projector")
_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
_CHOSEN_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_DTYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Weights:
    """What a checkpoint holds, by role: numbers of values and their bytes as they are stored."""

    num_values: dict[str, int]
    num_bytes: dict[str, int]
    dtypes: tuple[str, ...]

    def bytes_on(self, spec: WorkerSpec, dtype: str) -> int:
        """What the weights of one worker take once they are loaded, in bytes."""
        if dtype == "auto" and spec.device != "cpu":
            return sum(self.num_bytes[role] for role in spec.roles)
        each = _CHOSEN_BYTES["float32" if dtype == "auto" else dtype]
        return each * sum(self.num_values[role] for role in spec.roles)


def weigh(model: Path) -> Weights:
    """Count the weights of a checkpoint that `check_weights` has found whole."""
    values, sizes = {"vision": 0, "language": 0}, {"vision": 0, "language": 0}
    dtypes: set[str] = set()
    for file in _files(model):
        with safe_open(file, framework="np") as weights:
            for name in weights.keys():  # noqa: SIM118 - it is no mapping
                part = weights.get_slice(name)
                role = "vision" if _VISION.search(name) else "language"
                count, dtype = prod(part.get_shape()), part.get_dtype()
                values[role] += count
                sizes[role] += count * _BYTES.get(dtype, 1)
                dtypes.add(_DTYPE_NAMES.get(dtype, dtype))
    return Weights(values, sizes, tuple(sorted(dtypes)))


def _files(model: Path) -> list[Path]:
    if not (model / _INDEX).exists():
        return [model / _SINGLE]
    return [model / name for name in sorted(set(read_json(model / _INDEX)["weight_map"].values()))]
