"""Files of tensors for tests: honest ones by the library, hostile ones by hand."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

DTYPES = {"I64": 8, "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "U8": 1}  # bytes of one number


def tensor_file(grid: Sequence[int], **tensors: Tensor) -> bytes:
    """As a caller makes it: `patches` or `embeddings` beside the grid."""
    values = {name: tensor.contiguous() for name, tensor in tensors.items()}
    return safetensors.torch.save({"image_grid_thw": torch.tensor(list(grid)), **values})


def raw_file(header: object, body: bytes) -> bytes:
    """A header, as JSON or as bytes, and whatever follows."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + body


def laid_out(**tensors: tuple[str, list[int], bytes]) -> bytes:
    """Tensors given as dtype, shape and bytes, one behind the other."""
    header: dict[str, Any] = {}
    body = b""
    for name, (dtype, shape, data) in tensors.items():
        span = [len(body), len(body) + len(data)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": span}
        body += data
    return raw_file(header, body)


def tensor_part(file: bytes, **fields: Any) -> dict[str, Any]:
    """The file as a content part of a message."""
    data = base64.b64encode(file).decode()
    return {"type": "image_tensors", "image_tensors": {"data": data}, **fields}
