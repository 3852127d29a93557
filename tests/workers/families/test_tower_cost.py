"""What a layout says of its tower's cost, against the weights of the library's own tower."""

from pathlib import Path
from typing import Any

import pytest
import transformers

from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from workers.families import UnsupportedCheckpoint, load_layout
from workers.families.config_files import attention_patches

PLACE = Path("/checkpoint")


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ALL_MODEL_TYPES)
def test_attention_is_weighed_against_the_weights_of_the_tower(
    tmp_path: Path, model_type: str
) -> None:
    folder = make_checkpoint(tmp_path, model_type)
    model: Any = transformers.AutoModelForImageTextToText.from_pretrained(folder)
    tower = getattr(model.model, "visual", None) or model.model.vision_tower
    maps = [
        weight
        for name, weight in tower.named_parameters()
        if weight.ndim == 2 and ("blocks" in name or "layers" in name)
    ]
    config = tower.config
    width = getattr(config, "embed_dim", config.hidden_size)
    num_layers = getattr(config, "depth", None) or config.num_hidden_layers
    num_attending = len(getattr(config, "fullatt_block_indexes", range(num_layers)))
    expected = sum(weight.numel() for weight in maps) / (2 * width * num_attending)
    assert load_layout(folder).plan((280, 140), "cpu").attention_patches == int(expected)


def test_towers_in_use() -> None:
    assert attention_patches(PLACE, 1280, 5120, num_maps=2) == 7680  # Qwen2-VL
    assert attention_patches(PLACE, 1280, 3420, num_maps=3, share=4 / 32) == 61520  # Qwen2.5-VL
    assert attention_patches(PLACE, 1152, 4304, num_maps=2) == 6608  # Qwen3-VL, Kimi


@pytest.mark.parametrize("width", [0, None, "1280", 12.5])
def test_a_tower_without_a_width_is_refused(width: Any) -> None:
    with pytest.raises(UnsupportedCheckpoint, match="width"):
        attention_patches(PLACE, width, 5120, num_maps=2)
