"""Files of tensors as inputs, held to what their header says."""

import json
from math import prod
from random import Random
from typing import Any

from config.settings import DEMO_MODEL
from gateway.errors import ImageRejected
from gateway.images.fetch import SourceImage
from gateway.images.tensors import check_tensors, read_tensors
from ops.fuzz.images import PARAM, check_refusal
from ops.fuzz.mutate import mutate
from ops.fuzz.target import Wrong
from ops.fuzz.trees import damage
from workers.families import ImageShapeError, load_layout

_NAMES = (
    "patches",
    "embeddings",
    "image_grid_thw",
    "dtype",
    "shape",
    "data_offsets",
    "__metadata__",
)
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of one number
_GRIDS = ((1, 2, 2), (1, 4, 6), (1, 0, 2), (-1, 2, 2), (1, 2**62, 2), (2, 2, 2), (1, 3, 3))
_SHAPES = ((4, 1536), (24, 1536), (1, 256), (1, 1, 256), (2, 6, 256), (0, 1536), (2**40, 2**40))
_DTYPES = ("F32", "F16", "BF16", "F64", "I64", "U8", "BOOL")


def tensor_file(grid: tuple[int, ...], **tensors: tuple[str, tuple[int, ...], bytes]) -> bytes:
    """A safetensors file of a grid, and tensors given as dtype, shape and bytes."""
    numbers = b"".join(each.to_bytes(8, "little", signed=True) for each in grid)
    header, body = {}, b""
    for name, (dtype, shape, data) in {
        "image_grid_thw": ("I64", (len(grid),), numbers),
        **tensors,
    }.items():
        span = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": span}
        body += data
    return _frame(header, body)


def _frame(header: Any, body: bytes) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


class TensorFiles:
    """What callers send in place of images."""

    def __init__(self) -> None:
        self._layout = load_layout(DEMO_MODEL)

    def make(self, chance: Random) -> bytes:
        """A file, honest or not."""
        data = make_tensors(chance)
        match chance.randrange(4):
            case 0:
                return data
            case 1:
                return mutate(data, chance)
            case _:
                end = 8 + int.from_bytes(data[:8], "little")
                header = damage(json.loads(data[8:end]), _NAMES, chance)
                return _frame(header, data[end:])

    def judge(self, data: bytes) -> str:
        """See `Target.judge`."""
        file = SourceImage(0, PARAM, data)
        try:
            image, header = read_tensors(file)
            if len(image.data) != prod(header.shape) * _WIDTHS[header.dtype]:
                raise Wrong(f"{len(image.data)} bytes of {header}")
            plan = self._layout.plan_grid(header.grid, "cpu")
            check_tensors(image, header, plan)
        except ImageRejected as error:
            check_refusal(error)
            return f"refused: {error.code}"
        except ImageShapeError as error:
            if len(str(error)) > 200:
                raise Wrong("a long error") from error
            return "refused: grid"
        return f"taken: {header.kind}"

    def close(self) -> None:
        """Nothing is held."""


def make_tensors(chance: Random) -> bytes:
    """A file whose parts may not fit each other."""
    grid, kind = chance.choice(_GRIDS), chance.choice(("patches", "embeddings"))
    dtype, shape = chance.choice(_DTYPES), chance.choice(_SHAPES)
    if chance.random() < 0.3:
        grid, kind, dtype, shape = (1, 2, 2), "patches", "F32", (4, 1536)
    width = {"F64": 8, "I64": 8, "F32": 4, "F16": 2, "BF16": 2}.get(dtype, 1)
    num_bytes = prod(shape) * width
    data = bytes(num_bytes if num_bytes < 1 << 16 else 64)
    return tensor_file(grid, **{kind: (dtype, shape, data)})
