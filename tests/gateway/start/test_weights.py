"""Weights that cannot be whole are told from the heads of their files."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.settings import DEMO_MODEL
from gateway.start.weights import check_weights
from tests.checkpoints import ALL_MODEL_TYPES, make_checkpoint
from workers.families import UnsupportedCheckpoint

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    return shutil.copytree(DEMO_MODEL, tmp_path / "demo")


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("checkpoint"), "qwen3_vl")


@pytest.fixture
def sharded(written: Path, tmp_path: Path) -> Path:
    assert (written / INDEX).exists()
    return shutil.copytree(written, tmp_path / "sharded")


def edit_head(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    """Change what a file says about its weights, not the weights."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])
    edit(head)
    changed = json.dumps(head).encode()
    path.write_bytes(len(changed).to_bytes(8, "little") + changed + data[8 + length :])


def edit_json(path: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    value = json.loads(path.read_text())
    edit(value)
    path.write_text(json.dumps(value))


def refusal(model: Path) -> str:
    with pytest.raises(UnsupportedCheckpoint) as error:
        check_weights(model)
    return str(error.value)


def test_the_demo_model_is_whole() -> None:
    check_weights(DEMO_MODEL)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ALL_MODEL_TYPES)
def test_checkpoints_of_every_family_are_whole(model_type: str, tmp_path: Path) -> None:
    check_weights(make_checkpoint(tmp_path, model_type))


def test_a_folder_without_weights(demo: Path) -> None:
    (demo / SINGLE).unlink()
    assert "model.safetensors: No such file" in refusal(demo)


@pytest.mark.parametrize("num_bytes", [0, 5, 100, 30_000])
def test_a_file_that_is_cut_off(demo: Path, num_bytes: int) -> None:
    (demo / SINGLE).write_bytes((demo / SINGLE).read_bytes()[:num_bytes])
    assert "model.safetensors" in refusal(demo)


def test_a_file_that_lacks_its_last_byte_tells_both_lengths(demo: Path) -> None:
    data = (demo / SINGLE).read_bytes()
    (demo / SINGLE).write_bytes(data[:-1])
    assert f"has {len(data) - 1} bytes, not {len(data)}" in refusal(demo)


def test_a_pointer_of_git_lfs_in_place_of_the_file(demo: Path) -> None:
    (demo / SINGLE).write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "no safetensors file" in refusal(demo)


def test_a_shard_that_the_index_names_and_nobody_has(sharded: Path) -> None:
    last = sorted(sharded.glob("model-*.safetensors"))[-1]
    last.unlink()
    assert f"cannot read {last}" in refusal(sharded)


def test_a_weight_that_its_shard_lacks(sharded: Path) -> None:
    edit_json(
        sharded / INDEX,
        lambda index: index["weight_map"].update(ghost=min(index["weight_map"].values())),
    )
    assert "lacks 1 weights that the index has there, such as ghost" in refusal(sharded)


def test_an_index_without_a_map(sharded: Path) -> None:
    (sharded / INDEX).write_text("{}")
    assert "holds no weight_map" in refusal(sharded)


def test_a_layer_of_the_text_model_that_is_missing(demo: Path) -> None:
    edit_json(
        demo / "config.json", lambda config: config["text_config"].update(num_hidden_layers=5)
    )
    assert "the weights of model.language_model.layers.4 are missing" in refusal(demo)


def test_a_block_of_the_tower_that_is_missing(demo: Path) -> None:
    def drop_second(head: dict[str, Any]) -> None:
        for name in [name for name in head if "visual.blocks.1." in name]:
            head[name.replace("blocks.1.", "spare.1.")] = head.pop(name)

    edit_head(demo / SINGLE, drop_second)
    assert "the weights of model.visual.blocks.1 are missing" in refusal(demo)


def test_a_vocabulary_of_another_size(demo: Path) -> None:
    edit_json(demo / "config.json", lambda config: config["text_config"].update(vocab_size=700))
    assert "has the shape [768, 256]; by config.json it is [700, 256]" in refusal(demo)


def test_a_shape_that_does_not_go_with_its_bytes(demo: Path) -> None:
    edit_head(demo / SINGLE, lambda head: head["lm_head.weight"].update(shape=[768, 255]))
    assert "gives lm_head.weight 393216 bytes" in refusal(demo)
