"""Whether a checkpoint's weights can be what they should, from the heads of their files alone.

Workers find out as well, but only after seconds or minutes of loading.
"""

import json
import re
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from workers.families import UnsupportedCheckpoint, read_json

Shapes = dict[str, tuple[int, ...]]

_INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"
_LENGTH_BYTES = 8
_MAX_HEAD_BYTES = 100_000_000  # as in the library that reads them
_BITS = {
    name: num_bits
    for num_bits, names in {
        8: ("I8", "U8", "BOOL", "F8_E4M3", "F8_E5M2"),
        16: ("F16", "BF16", "I16", "U16"),
        32: ("F32", "I32", "U32"),
        64: ("F64", "I64", "U64"),
    }.items()
    for name in names
}
_LAYER = re.compile(r"(?P<stack>.*\b(?:layers|blocks))\.(?P<number>\d+)\.")
_EMBEDDINGS = "embed_tokens.weight"


def check_weights(model: Path) -> None:
    """Read the heads of all files with weights.

    Raises:
        UnsupportedCheckpoint: a file or a weight is missing, a file is cut off or no safetensors, a
            layer is missing, or the size of the vocabulary or the model is not what config.json
            says.
    """
    has_index = (model / _INDEX).exists()
    shapes = _read_shards(model) if has_index else _read_head(model / _SINGLE)
    config = read_json(model / "config.json")
    text = config.get("text_config") or config
    _check_layers(model, shapes, text.get("num_hidden_layers"))
    _check_embeddings(model, shapes, (text.get("vocab_size"), text.get("hidden_size")))


def _read_shards(model: Path) -> Shapes:
    places = read_json(model / _INDEX).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(each, str) for each in places.values()):
        raise UnsupportedCheckpoint(f"{model / _INDEX} holds no weight_map")
    shapes: Shapes = {}
    for file in sorted(set(places.values())):
        held = _read_head(model / file)
        missing = [name for name, place in places.items() if place == file and name not in held]
        if missing:
            raise UnsupportedCheckpoint(
                f"{model / file} lacks {len(missing)} weights that the index has there, such as "
                f"{min(missing)}; download the file again"
            )
        shapes |= held
    return shapes


def _read_head(path: Path) -> Shapes:
    """The shape of every weight in one file, whose length is what they take up."""
    try:
        num_bytes = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
            if length > min(num_bytes, _MAX_HEAD_BYTES):
                raise UnsupportedCheckpoint(f"{path} is no safetensors file, or is cut off")
            head = json.loads(file.read(length))
    except OSError as error:
        raise UnsupportedCheckpoint(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UnsupportedCheckpoint(f"{path} is no safetensors file") from error
    weights = {name: each for name, each in head.items() if name != "__metadata__"}
    end = max((_check_weight(path, name, each) for name, each in weights.items()), default=0)
    wanted = _LENGTH_BYTES + length + end
    if num_bytes != wanted:
        raise UnsupportedCheckpoint(
            f"{path} has {num_bytes} bytes, not {wanted}; download the file again"
        )
    return {name: tuple(each["shape"]) for name, each in weights.items()}


def _check_weight(path: Path, name: str, weight: Any) -> int:
    """Where a weight ends behind the head, in bytes."""
    try:
        start, end = weight["data_offsets"]
        num_bits = prod(weight["shape"]) * _BITS.get(weight["dtype"], 0)
    except (TypeError, KeyError, ValueError) as error:
        raise UnsupportedCheckpoint(f"{path} says nothing of use about {name}") from error
    if num_bits and num_bits != 8 * (end - start):
        raise UnsupportedCheckpoint(f"{path} gives {name} {end - start} bytes for its shape")
    return int(end)


def _check_layers(model: Path, names: Iterable[str], num_layers: Any) -> None:
    """Layers are counted from 0, and those of the text model are as many as they should be."""
    stacks: dict[str, set[int]] = {}
    for name in names:
        match = _LAYER.match(name)
        if match:
            stacks.setdefault(match["stack"], set()).add(int(match["number"]))
    for stack, numbers in stacks.items():
        is_text = isinstance(num_layers, int) and not re.search("vis(ual|ion)", stack)
        count = num_layers if is_text else max(numbers) + 1
        missing = set(range(count)) - numbers
        if missing:
            raise UnsupportedCheckpoint(
                f"{model}: the weights of {stack}.{min(missing)} are missing; download them again"
            )


def _check_embeddings(
    model: Path, shapes: Mapping[str, tuple[int, ...]], wanted: tuple[Any, Any]
) -> None:
    for name, shape in shapes.items():
        if name.endswith(_EMBEDDINGS) and None not in wanted and shape != wanted:
            raise UnsupportedCheckpoint(
                f"{model}: {name} has the shape {list(shape)}; by config.json it is {list(wanted)}"
            )
