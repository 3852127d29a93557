"""Products of bfloat16 rows with a model's weights in C, and the step that follows in one."""

import ctypes

import torch
from torch import Tensor, nn

from workers.native.library import function, load

COLUMNS = 48  # of `products.h`
ALONE, SILU, TIMES, PLUS = range(4)  # `enum next_step`


class _Product(ctypes.Structure):
    """`struct product`."""

    _fields_ = (
        ("rows", ctypes.c_void_p),
        ("num_rows", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        ("num_in", ctypes.c_int64),
        ("weight", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("other", ctypes.c_void_p),
        ("other_stride", ctypes.c_int64),
        ("outputs", ctypes.c_void_p),
        ("num_out", ctypes.c_int64),
        ("next_step", ctypes.c_int64),
        ("num_threads", ctypes.c_int64),
    )


class NativeProduct(nn.Module):
    """x -> x @ weight.T + bias, alone or with the step that comes after it, rounded once.

    Sums are float32, in one order: a row's result has the same bits whatever rows come along, and
    whatever the number of threads, of which it takes up to as many as torch has in the caller.
    Against oneDNN's packed products (Zen 4, one thread): 0.41 of the time for one row, 0.45 for 8,
    0.65 for 16, and 0.92 to 1.04 from 64 rows on.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        """Pack a bfloat16 weight [out, an even number], which is not needed afterwards.

        Raises:
            NoKernel: the library cannot be had.
        """
        super().__init__()
        self._multiply = function(load(), "fovea_multiply")
        self._num_out, self._num_in = weight.shape
        self._weight = _pack(weight.detach())
        self._bias: Tensor | None = None
        if bias is not None:
            self._bias = torch.zeros(len(self._weight) * COLUMNS)
            self._bias[: self._num_out] = bias.detach()

    def __call__(self, x: Tensor) -> Tensor:
        """[..., in] -> [..., out]."""
        return self._run(x, None, ALONE)

    def silu(self, x: Tensor) -> Tensor:
        """The product's SiLU: y * sigmoid(y)."""
        return self._run(x, None, SILU)

    def times(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, times `other` number by number."""
        return self._run(x, other, TIMES)

    def plus(self, x: Tensor, other: Tensor) -> Tensor:
        """The product, added to `other`."""
        return self._run(x, other, PLUS)

    def _run(self, x: Tensor, other: Tensor | None, step: int) -> Tensor:
        rows = _as_rows(x, self._num_in)
        outputs = torch.empty((*x.shape[:-1], self._num_out), dtype=torch.bfloat16)
        beside = None if other is None else _as_rows(other, self._num_out)
        job = _Product(
            rows.data_ptr(),
            len(rows),
            rows.stride(0),
            self._num_in,
            self._weight.data_ptr(),
            None if self._bias is None else self._bias.data_ptr(),
            None if beside is None else beside.data_ptr(),
            0 if beside is None else beside.stride(0),
            outputs.data_ptr(),
            self._num_out,
            step,
            torch.get_num_threads(),
        )
        self._multiply(ctypes.addressof(job))
        return outputs


def packs(weight: Tensor) -> bool:
    """Whether a weight [out, in] can be packed; for the device and type see `serves`."""
    return weight.shape[1] % 2 == 0


def _pack(weight: Tensor) -> Tensor:
    """[out, in] -> [strips, in / 2, COLUMNS, 2]; columns that are not there are 0."""
    num_out, num_in = weight.shape
    num_strips = -(-num_out // COLUMNS)
    padded = weight.new_zeros(num_strips * COLUMNS, num_in)
    padded[:num_out] = weight
    return padded.view(num_strips, COLUMNS, num_in // 2, 2).transpose(1, 2).contiguous()


def _as_rows(tensor: Tensor, width: int) -> Tensor:
    """[..., width] -> [rows, width] whose numbers lie together."""
    rows = tensor.reshape(-1, width)
    assert rows.dtype == torch.bfloat16, "the kernel reads bfloat16"
    return rows if rows.stride(1) == 1 else rows.contiguous()
