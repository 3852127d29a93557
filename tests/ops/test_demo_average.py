"""An average of two checkpoints is a checkpoint with the weights in between."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from ops.demo_model.average import average, write_average
from ops.demo_model.checkpoint import SIDE_FILES


def _weights(seed: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "norm": torch.randn(5, generator=generator),
        "matrix": torch.randn(3, 4, generator=generator).bfloat16(),
    }


def _write(directory: Path, seed: int) -> Path:
    directory.mkdir()
    save_file(_weights(seed), directory / "model.safetensors")
    for name in SIDE_FILES:
        (directory / name).write_text(f"{name} of {seed}")
    return directory


def test_average_takes_the_share_from_the_first() -> None:
    first, second = _weights(1), _weights(2)
    mixed = average(first, second, 0.35)
    for name in first:
        expected = 0.35 * first[name].float() + 0.65 * second[name].float()
        assert mixed[name].dtype == first[name].dtype
        assert torch.allclose(mixed[name].float(), expected, rtol=2**-8)


@pytest.mark.parametrize(("share", "seed"), [(1.0, 1), (0.0, 2)])
def test_a_whole_share_gives_one_of_the_two(share: float, seed: int) -> None:
    mixed = average(_weights(1), _weights(2), share)
    assert all(torch.equal(mixed[name], tensor) for name, tensor in _weights(seed).items())


@pytest.mark.parametrize("share", [-0.1, 1.1])
def test_share_beyond_the_whole_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        average(_weights(1), _weights(2), share)


def test_checkpoints_of_different_models_are_refused() -> None:
    other = {**_weights(2), "norm": torch.zeros(6)}
    with pytest.raises(ValueError, match="differ"):
        average(_weights(1), other, 0.5)
    with pytest.raises(ValueError, match="differ"):
        average(_weights(1), {"norm": torch.zeros(5)}, 0.5)


def test_written_average_is_a_whole_checkpoint(tmp_path: Path) -> None:
    first, second = _write(tmp_path / "first", 1), _write(tmp_path / "second", 2)
    target = tmp_path / "mixed"
    write_average(first, second, 0.5, target)
    mixed = load_file(target / "model.safetensors")
    expected = average(_weights(1), _weights(2), 0.5)
    assert all(torch.equal(mixed[name], tensor) for name, tensor in expected.items())
    assert {(target / name).read_text() for name in SIDE_FILES} == {
        f"{name} of 2" for name in SIDE_FILES
    }
