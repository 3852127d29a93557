"""Attention on a CPU in C: tensors and the segments of their rows in, outputs out.

`attention.c` is compiled when the package is installed, into a library beside this file. Where no
compiler was there, or the processor lacks the instructions, there is no kernel, and callers take
torch's attention.
"""

import ctypes
import importlib.machinery
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_WIDTH = 256  # of a head
LIBRARY = "_attention"

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


class NoKernel(Exception):
    """The kernel cannot be had here; the message says why."""


class AttentionKernel:
    """The library, loaded; its calls let go of the interpreter's lock."""

    def __init__(self) -> None:
        """Load it.

        Raises:
            NoKernel: it was not built, or does not run on this processor.
        """
        path = _find()
        if path is None:
            raise NoKernel("it was not built when the package was installed (no C compiler?)")
        library = ctypes.CDLL(str(path))
        if not library.fovea_attention_runs_here():
            raise NoKernel("this processor has no AVX-512 with bfloat16 products")
        self._attend = library.fovea_attend
        self._attend.argtypes = (ctypes.c_void_p,)
        self._attend.restype = None

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
        self._attend(ctypes.addressof(call))
        return outputs


def why_not(device: torch.device, dtype: torch.dtype, width: int) -> str:
    """Why heads of so many numbers are not for the kernel; empty if they are."""
    if (device.type, dtype) != ("cpu", torch.bfloat16):
        return f"it computes bfloat16 on a cpu; here is {dtype} on {device.type}"
    if width % 2 or width > MAX_WIDTH:
        return f"it serves heads of an even number of at most {MAX_WIDTH}; here are {width}"
    return ""


def kernel_for(device: torch.device, dtype: torch.dtype, width: int) -> AttentionKernel | None:
    """The kernel for heads of so many numbers, if there is one."""
    if why_not(device, dtype, width):
        return None
    try:
        return AttentionKernel()
    except NoKernel:
        return None


def _places(tensor: Tensor) -> tuple[int, int, int]:
    """Address, and strides of heads and rows, of a tensor that C may read."""
    head, row, number = tensor.stride()
    assert tensor.dtype == torch.bfloat16, "the kernel reads bfloat16"
    assert number == 1, "the numbers of a head lie together"
    return tensor.data_ptr(), head, row


def _find() -> Path | None:
    """The library, as a build names it."""
    folder = Path(__file__).parent
    paths = (folder / (LIBRARY + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES)
    return next((path for path in paths if path.exists()), None)
