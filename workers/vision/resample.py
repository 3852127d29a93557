"""Pillow's bicubic resizing in integers: the same bits as Pillow's on every device.

Pillow resizes one axis after the other. Each pass sums levels times weights of 22 fractional bits
and rounds to whole levels, so the order of the passes decides bits; the plan names it. Alpha is
multiplied in before and divided out after, in 8 bits. Nothing here is a float but the making of
the weights, which happens on the host.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from workers.families.plan import Pass, Size

_FRACTION_BITS = 22
_HALF = 1 << (_FRACTION_BITS - 1)
# Values that are worked on at a time, each in 4 bytes: few enough to stay in a core's cache, and
# on a GPU enough to fill it while memory stays bounded.
_CPU_VALUES = 1 << 18
_GPU_VALUES = 1 << 25


def resize(pixels: Tensor, size: Size, first: Pass) -> Tensor:
    """Resize one image; a pass that changes nothing is left out.

    Args:
        pixels: uint8 [height, width, channels], on any device; the channels are
            gray, gray and alpha, RGB, or RGBA.
        size: (height, width) of the result, in pixels.
        first: which pass goes first where both are needed.

    Returns:
        uint8 [*size, channels] on the same device; `pixels` itself if it has that size.
    """
    if pixels.shape[:2] == size:
        return pixels
    has_alpha = pixels.shape[2] in (2, 4)
    if has_alpha:
        pixels = _row_by_row(_multiply_alpha_in, pixels)
    if first == "horizontal":
        pixels = _resize_rows(_resize_columns(pixels, size[1]), size[0])
    else:
        pixels = _resize_columns(_resize_rows(pixels, size[0]), size[1])
    return _row_by_row(_divide_alpha_out, pixels) if has_alpha else pixels


def _resize_rows(pixels: Tensor, height: int) -> Tensor:
    old_height, width, channels = pixels.shape
    if old_height == height:
        return pixels
    rows = _resample(pixels.reshape(old_height, width * channels), height)
    return rows.view(height, width, channels)


def _resize_columns(pixels: Tensor, width: int) -> Tensor:
    height, old_width, channels = pixels.shape
    if old_width == width:
        return pixels
    # Turned over, a column is one contiguous row: a channel of it after the other.
    turned = pixels.reshape(height, old_width * channels).T.contiguous()
    columns = _resample(turned.view(old_width, channels * height), width)
    return columns.view(width * channels, height).T.reshape(height, width, channels)


def _resample(rows: Tensor, num_rows: int) -> Tensor:
    """One pass along the first axis: uint8 [old rows, values] -> uint8 [num_rows, values]."""
    old_num_rows, num_values = rows.shape
    starts, weights = (
        torch.from_numpy(array).to(rows.device) for array in find_weights(old_num_rows, num_rows)
    )
    result = rows.new_empty(num_rows, num_values)
    step = _num_rows_at_a_time(rows.device, num_values)
    for first in range(0, num_rows, step):
        part = slice(first, first + step)
        sums = torch.full_like(result[part], _HALF, dtype=torch.int32)
        for tap, weight in enumerate(torch.split(weights[part], 1, dim=1)):
            # Past the last row there is only weight 0.
            taken = (starts[part] + tap).clamp_(max=old_num_rows - 1)
            sums.add_(rows.index_select(0, taken).int().mul_(weight))
        result[part] = sums.bitwise_right_shift_(_FRACTION_BITS).clamp_(0, 255)
    return result


def find_weights(old: int, new: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """What each of `new` samples takes from `old` ones.

    Returns:
        int64 [new], the first sample that is taken, and int32 [new, taps], the weights from there
        on in units of 2 ** -22; rows that take fewer samples end in 0.
    """
    scale = old / new
    stretch = max(scale, 1.0)
    reach = 2.0 * stretch
    centres = (np.arange(new) + 0.5) * scale
    starts = np.maximum((centres - reach + 0.5).astype(np.int64), 0)
    ends = np.minimum((centres + reach + 0.5).astype(np.int64), old)
    samples = starts[:, None] + np.arange((ends - starts).max())
    distances = (samples - centres[:, None] + 0.5) * (1.0 / stretch)
    values = np.where(samples < ends[:, None], _bicubic(np.abs(distances)), 0.0)
    # Added up from left to right, as Pillow does it: another order may round otherwise.
    values /= np.cumsum(values, axis=1)[:, -1:]
    # Halves away from zero, and the cast drops what is behind the point.
    return starts, (values * (1 << _FRACTION_BITS) + np.copysign(0.5, values)).astype(np.int32)


def _bicubic(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Keys' kernel with a = -0.5 at distances `x` of 0 and more, in Pillow's order of steps."""
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def _row_by_row(function: Callable[[Tensor], Tensor], pixels: Tensor) -> Tensor:
    """Apply `function` to some rows at a time, so that its wide numbers stay few."""
    step = _num_rows_at_a_time(pixels.device, pixels.shape[1] * pixels.shape[2])
    return torch.cat([function(rows) for rows in torch.split(pixels, step)])


def _num_rows_at_a_time(device: torch.device, num_values: int) -> int:
    return max(1, (_CPU_VALUES if device.type == "cpu" else _GPU_VALUES) // num_values)


def _multiply_alpha_in(pixels: Tensor) -> Tensor:
    wide = pixels.int()
    colours, alpha = wide[..., :-1], wide[..., -1:]
    product = colours * alpha + 128
    product = (product + (product >> 8)) >> 8  # divided by 255, rounded to nearest
    return torch.cat((product.to(torch.uint8), pixels[..., -1:]), dim=-1)


def _divide_alpha_out(pixels: Tensor) -> Tensor:
    wide = pixels.int()
    colours, alpha = wide[..., :-1], wide[..., -1:]
    quotient = torch.div(colours * 255, alpha.clamp(min=1), rounding_mode="floor").clamp_(max=255)
    restored = torch.where(alpha == 0, colours, quotient)  # an alpha of 255 divides to the same
    return torch.cat((restored.to(torch.uint8), pixels[..., -1:]), dim=-1)
