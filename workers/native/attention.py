"""Attention on a CPU in C: tensors and the segments of their rows in, outputs out."""

import ctypes
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.native.library import function, load

MAX_WIDTH = 256  # of a head

SEGMENT = np.dtype(
    [
        ("first_row", np.int64),
        ("num_rows", np.int64),
        ("num_keys", np.int64),
        ("num_seen", np.int64),  # keys that the first row sees; each further row sees one more
        ("first_key", np.int64),
        ("blocks", np.uint64),  # address of int64 [blocks], or 0: keys follow each other
    ]
)
Segments = np.ndarray[Any, np.dtype[np.void]]


class _Call(ctypes.Structure):
    """`struct attention`."""

    _fields_ = (
        ("queries", ctypes.c_void_p),
        ("query_head", ctypes.c_int64),
        ("query_row", ctypes.c_int64),
        ("keys", ctypes.c_void_p),
        ("key_head", ctypes.c_int64),
        ("key_row", ctypes.c_int64),
        ("values", ctypes.c_void_p),
        ("value_head", ctypes.c_int64),
        ("value_row", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("num_heads", ctypes.c_int64),
        ("num_key_heads", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("block_keys", ctypes.c_int64),
        ("segments", ctypes.c_void_p),
        ("num_segments", ctypes.c_int64),
        ("num_threads", ctypes.c_int64),
        ("scale", ctypes.c_double),
    )


class AttentionKernel:
    """The library's attention."""

    def __init__(self) -> None:
        """Load the library.

        Raises:
            NoKernel: it cannot be had.
        """
        self._attend = function(load(), "fovea_attend", 2)

    def attend(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        segments: Segments,
        scale: float,
        block_keys: int = 1,
    ) -> Tensor:
        """Attention of every segment; heads may share keys, as in grouped queries.

        Computed by up to as many threads as torch has in the calling one. A row's output depends
        on its own segment only, not on what comes along, nor on the number of threads.

        Args:
            queries: bfloat16 [heads, rows, width]; even width up to `MAX_WIDTH`, of any strides
                but that of the last axis, which is 1.
            keys: bfloat16 [key heads, places, width], likewise.
            values: like `keys`.
            segments: `SEGMENT` [segments]; they cover all rows. Whoever gives addresses of blocks
                keeps them alive.
            scale: factor applied to the scores.
            block_keys: keys of a block, where there are blocks.

        Returns:
            bfloat16 [rows, heads, width]
        """
        num_heads, num_rows, width = queries.shape
        outputs = torch.empty((num_rows, num_heads, width), dtype=torch.bfloat16)
        call = _Call(
            *_places(queries),
            *_places(keys),
            *_places(values),
            outputs.data_ptr(),
            num_heads,
            len(keys),
            width,
            block_keys,
            segments.ctypes.data,
            len(segments),
            torch.get_num_threads(),
            scale,
        )
        ends = np.empty(len(segments), np.int64)
        self._attend(ctypes.addressof(call), ends.ctypes.data)
        return outputs


def why_not(width: int) -> str:
    """Why heads of so many numbers are not for the kernel; empty if they are."""
    if width % 2 or width > MAX_WIDTH:
        return f"it serves heads of an even number of at most {MAX_WIDTH}; here are {width}"
    return ""


def _places(tensor: Tensor) -> tuple[int, int, int]:
    """Address, and strides of heads and rows, of a tensor that C may read."""
    head, row, number = tensor.stride()
    assert tensor.dtype == torch.bfloat16, "the kernel reads bfloat16"
    assert number == 1, "the numbers of a head lie together"
    return tensor.data_ptr(), head, row
