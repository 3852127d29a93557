"""Decoders that packed attention would get wrong are refused."""

from types import SimpleNamespace

import pytest
import torch

from workers.families import UnsupportedCheckpoint
from workers.families.qwen_vl.text import TextModel


def test_sliding_windows_are_refused() -> None:
    config = SimpleNamespace(layer_types=["full_attention", "sliding_attention"])
    with pytest.raises(UnsupportedCheckpoint, match="sliding_attention"):
        TextModel(SimpleNamespace(config=config), torch.nn.Linear(1, 1), 0)


def test_rotations_that_change_with_the_batch_are_refused() -> None:
    config = SimpleNamespace(rope_parameters={"rope_type": "dynamic"})
    with pytest.raises(UnsupportedCheckpoint, match="dynamic"):
        TextModel(SimpleNamespace(config=config), torch.nn.Linear(1, 1), 0)
