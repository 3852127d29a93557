"""Average the weights of two checkpoint directories that go back to one start."""

import argparse
import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from ops.demo_model.checkpoint import SIDE_FILES

WEIGHTS_FILE = "model.safetensors"
Weights = dict[str, Tensor]


def average(first: Weights, second: Weights, share: float) -> Weights:
    """`share` of the first and the rest of the second, computed in float32, in the first's dtypes.

    Raises ValueError when names or shapes differ, or when the share is not between 0 and 1.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"a share lies between 0 and 1, not at {share}")
    shapes = [{name: tensor.shape for name, tensor in each.items()} for each in (first, second)]
    if shapes[0] != shapes[1]:
        raise ValueError("the two checkpoints differ in the names or shapes of their weights")
    return {
        name: (share * tensor.float() + (1 - share) * second[name].float()).to(tensor.dtype)
        for name, tensor in first.items()
    }


def write_average(first: Path, second: Path, share: float, target: Path) -> None:
    """Write the average as a checkpoint directory, with the second's tokenizer and settings."""
    weights = average(load_file(first / WEIGHTS_FILE), load_file(second / WEIGHTS_FILE), share)
    target.mkdir(parents=True, exist_ok=True)
    save_file(weights, target / WEIGHTS_FILE, metadata={"format": "pt"})
    for name in SIDE_FILES:
        if second != target:
            shutil.copyfile(second / name, target / name)


def main() -> None:
    """Read two directories and write a third."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--share", type=float, default=0.5, help="of the first, from 0 to 1")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    options = parser.parse_args()
    write_average(options.first, options.second, options.share, options.out)


if __name__ == "__main__":
    main()
