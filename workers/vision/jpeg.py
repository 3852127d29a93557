"""JPEG files in, pixels on a device out: by nvJPEG on CUDA, by libjpeg-turbo on the CPU.

On the CPU the pixels are Pillow's, bit for bit; nvJPEG's may be a few levels off.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.io import ImageReadMode, decode_jpeg

# Axes to flip after rows and columns have been exchanged for the orientations from 5 on.
_FLIPS = {2: (1,), 3: (0, 1), 4: (0,), 6: (1,), 7: (0, 1), 8: (0,)}
_FIRST_TURNED = 5


def decode_jpegs(files: Sequence[Tensor], device: torch.device) -> list[Tensor | None]:
    """Decode files, together where the device does it faster; None for one that it cannot read.

    Args:
        files: whole files, each uint8 [bytes] on the CPU.
        device: where to decode, and where the pixels stay.

    Returns:
        uint8 RGB [height, width, 3] per file, in order; as stored, whatever the orientation.

    Raises:
        AcceleratorError: the device is lost.
    """
    if device.type == "cuda" and len(files) > 1:
        try:
            return [_channels_last(picture) for picture in _decode(list(files), device)]
        except torch.AcceleratorError:
            raise
        except RuntimeError:
            pass  # it does not say which file is to blame
    return [_decode_alone(file, device) for file in files]


def upright(pixels: Tensor, orientation: int) -> Tensor:
    """Turn [height, width, channels] as its EXIF orientation, 1 to 8, says."""
    if orientation >= _FIRST_TURNED:
        pixels = pixels.transpose(0, 1)
    return pixels.flip(_FLIPS[orientation]) if orientation in _FLIPS else pixels


def _decode_alone(file: Tensor, device: torch.device) -> Tensor | None:
    try:
        return _channels_last(_decode([file], device)[0])
    except torch.AcceleratorError:
        raise
    except RuntimeError:
        return None


def _decode(files: list[Tensor], device: torch.device) -> list[Tensor]:
    pictures: list[Tensor] = decode_jpeg(files, ImageReadMode.RGB, device)
    return pictures


def _channels_last(picture: Tensor) -> Tensor:
    return picture.permute(1, 2, 0)
