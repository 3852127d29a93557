"""Small steps on rows of bfloat16 numbers in C: each is one pass over memory, not several.

Rows are [tokens, heads, width], or [tokens, width] for one head; the numbers of a head lie
together, all other strides are free.
"""

import ctypes

import torch
from torch import Tensor

from workers.native.library import NoKernel, function, load


class _Rows(ctypes.Structure):
    """`struct rows`."""

    _fields_ = (
        ("first", ctypes.c_void_p),
        ("num_tokens", ctypes.c_int64),
        ("token_stride", ctypes.c_int64),
        ("num_heads", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("width", ctypes.c_int64),
    )


class _Normalising(ctypes.Structure):
    """`struct normalising`."""

    _fields_ = (
        ("from_", _Rows),
        ("to", _Rows),
        ("weight", ctypes.c_void_p),
        ("floor", ctypes.c_float),
        ("num_threads", ctypes.c_int64),
    )


class _Rotating(ctypes.Structure):
    """`struct rotating`."""

    _fields_ = (
        ("rows", _Rows),
        ("cosines", ctypes.c_void_p),
        ("sines", ctypes.c_void_p),
        ("angle_stride", ctypes.c_int64),
        ("num_threads", ctypes.c_int64),
    )


class _Keeping(ctypes.Structure):
    """`struct keeping`."""

    _fields_ = (
        ("from_", _Rows),
        ("store", ctypes.c_void_p),
        ("num_places", ctypes.c_int64),
        ("places", ctypes.c_void_p),
    )


class RowKernel:
    """The steps; those that are worth it use as many threads as torch has in the calling one."""

    def __init__(self) -> None:
        """Load the library.

        Raises:
            NoKernel: it cannot be had.
        """
        library = load()
        self._normalise = function(library, "fovea_normalise")
        self._rotate = function(library, "fovea_rotate")
        self._keep = function(library, "fovea_keep")

    def normalise(self, rows: Tensor, weight: Tensor, floor: float) -> Tensor:
        """Each head's numbers / sqrt(mean of their squares + floor) * weight, as new rows.

        Computed in float32 and rounded once; weight is bfloat16 [width].
        """
        normed = torch.empty(rows.shape, dtype=torch.bfloat16)
        job = _Normalising(
            _rows(rows), _rows(normed), weight.data_ptr(), floor, torch.get_num_threads()
        )
        self._normalise(ctypes.addressof(job))
        return normed

    def rotate(self, rows: Tensor, cosines: Tensor, sines: Tensor) -> None:
        """Turn rows in place: each number with the one half a head on, in float32, rounded once.

        Args:
            rows: of an even width.
            cosines: float32 [tokens, at least half a width], of any stride between tokens.
            sines: of the same shape and strides.
        """
        assert cosines.stride() == sines.stride(), "tables are alike"
        assert (cosines.dtype, cosines.stride(-1)) == (torch.float32, 1), "tables are float32 rows"
        job = _Rotating(
            _rows(rows),
            cosines.data_ptr(),
            sines.data_ptr(),
            cosines.stride(0),
            torch.get_num_threads(),
        )
        self._rotate(ctypes.addressof(job))

    def keep(self, store: Tensor, places: Tensor, rows: Tensor) -> None:
        """Copy each token's heads to its place, int64 [tokens], of a store [heads, places, width].

        The store is contiguous.
        """
        assert store.is_contiguous(), "a store has no gaps"
        job = _Keeping(_rows(rows), store.data_ptr(), store.shape[1], places.data_ptr())
        self._keep(ctypes.addressof(job))


def serves(tensor: Tensor) -> bool:
    """Whether the library is there and computes on tensors like this one."""
    if (tensor.device.type, tensor.dtype) != ("cpu", torch.bfloat16):
        return False
    try:
        load()
    except NoKernel:
        return False
    return True


def _rows(tensor: Tensor) -> _Rows:
    """How C finds the rows of a tensor."""
    assert tensor.dtype == torch.bfloat16, "the kernel reads bfloat16"
    assert tensor.stride(-1) == 1, "the numbers of a head lie together"
    if tensor.ndim == 2:
        tensor = tensor[:, None]
    num_tokens, num_heads, width = tensor.shape
    token_stride, head_stride, _ = tensor.stride()
    return _Rows(tensor.data_ptr(), num_tokens, token_stride, num_heads, head_stride, width)
