"""Lets a peer import torchvision whose CUDA build lies beside a CPU build of torch.

Python runs this file by itself where its folder is on PYTHONPATH. Such a torchvision stops with
"operator torchvision::nms does not exist", because its compiled half does not load. No image
processor needs that half, so declaring those operators is enough. torchaudio and torchcodec,
broken in the same way, are hidden. With matching builds this does nothing.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

OPERATORS = ("nms", "qnms")
SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
BROKEN_BESIDE_CPU_TORCH = ("torchaudio", "torchcodec")


class DeclareOperators(MetaPathFinder):
    """Finds nothing; declares the operators when the module that describes them is looked for."""

    library: Any = None  # the declarations last as long as this

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Called by every import."""
        if fullname == "torchvision._meta_registrations" and self.library is None:
            import torch

            self.library = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
            for operator in OPERATORS:
                self.library.define(operator + SIGNATURE)


def install() -> None:
    """Prepare this process if its torch is a CPU build."""
    torch = importlib.util.find_spec("torch")
    if torch is None or torch.origin is None:
        return
    if (Path(torch.origin).parent / "lib" / "libc10_cuda.so").exists():
        return
    sys.meta_path.insert(0, DeclareOperators())
    for name in BROKEN_BESIDE_CPU_TORCH:
        sys.modules[name] = None  # type: ignore[assignment]  # how Python spells "not installed"


install()
