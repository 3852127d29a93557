"""A worker loads the half it needs, whole and unaltered, or refuses the checkpoint."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.checkpoints import MODEL_TYPES, make_checkpoint
from workers.families import UnsupportedCheckpoint
from workers.families.qwen_vl.load import load_models, load_parts

BOTH = ("vision", "language")


@pytest.fixture(scope="module", params=MODEL_TYPES)
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("load"), request.param)


@pytest.fixture(scope="module")
def original(checkpoint: Path) -> Any:
    return transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype="float32")


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to be damaged by a test."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def ignore(_done: int, _total: int) -> None:
    pass


def weights(path: Path) -> dict[str, Tensor]:
    """All weights, under the names that modules have today."""
    return {
        late_spelling(name): tensor
        for shard in path.glob("*.safetensors")
        for name, tensor in load_file(shard).items()
    }


def replace_weights(path: Path, tensors: dict[str, Tensor]) -> None:
    """Put `tensors` in place of all shards."""
    for file in path.glob("model*.safetensors*"):
        file.unlink()
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})


def late_spelling(name: str) -> str:
    """Weight names as modules have them; the library writes qwen2 checkpoints the early way."""
    if name.startswith("visual."):
        return f"model.{name}"
    if name.startswith(("model.layers.", "model.norm.", "model.embed_tokens.")):
        return name.replace("model.", "model.language_model.", 1)
    return name


def early_spelling(name: str) -> str:
    """Weight names as the first public checkpoints of the family have them."""
    return name.replace("model.visual.", "visual.").replace("model.language_model.", "model.")


def assert_equal_weights(loaded: Any, original: Any, prefixes: tuple[str, ...]) -> None:
    """`loaded` has exactly the original's parameters that start with `prefixes`."""
    expected = {n: p for n, p in original.named_parameters() if n.startswith(prefixes)}
    found = dict(loaded.named_parameters())
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


VISION = ("model.visual.",)
LANGUAGE = ("model.language_model.", "lm_head.")


@pytest.mark.parametrize(
    ("roles", "prefixes"),
    [(("vision",), VISION), (("language",), LANGUAGE), (BOTH, VISION + LANGUAGE)],
)
def test_each_role_gets_its_weights_and_no_others(
    checkpoint: Path, original: Any, roles: tuple[str, ...], prefixes: tuple[str, ...]
) -> None:
    assert_equal_weights(load_parts(checkpoint, roles, "float32", ignore), original, prefixes)


@pytest.mark.parametrize(
    ("roles", "prefixes"),
    [(("vision",), VISION), (("language",), LANGUAGE), (BOTH, VISION + LANGUAGE)],
)
def test_early_and_late_weight_names_load_alike(
    copy: Path, original: Any, roles: tuple[str, ...], prefixes: tuple[str, ...]
) -> None:
    is_qwen3 = json.loads((copy / "config.json").read_text())["model_type"] == "qwen3_vl"
    tensors = weights(copy)
    for spelling in [late_spelling] if is_qwen3 else [late_spelling, early_spelling]:
        replace_weights(copy, {spelling(name): each for name, each in tensors.items()})

        assert_equal_weights(load_parts(copy, roles, "float32", ignore), original, prefixes)


def test_config_without_nesting_loads_with_early_names(copy: Path, original: Any) -> None:
    config = json.loads((copy / "config.json").read_text())
    if config["model_type"] == "qwen3_vl":
        return  # never had it
    flat = config.pop("text_config") | config
    rope = flat.pop("rope_parameters")
    flat |= {"rope_theta": rope["rope_theta"]}
    flat["rope_scaling"] = {"type": "mrope", "mrope_section": rope["mrope_section"]}
    flat["vision_config"]["model_type"] = flat["model_type"]
    (copy / "config.json").write_text(json.dumps(flat))
    replace_weights(copy, {early_spelling(name): each for name, each in weights(copy).items()})

    loaded = load_parts(copy, BOTH, "float32", ignore)

    assert_equal_weights(loaded, original, VISION + LANGUAGE)
    assert loaded.config.text_config.rope_parameters["mrope_section"] == rope["mrope_section"]


@pytest.mark.parametrize(
    ("roles", "lost"),
    [
        (("vision",), "model.visual.blocks.1.norm1.weight"),
        (("language",), "model.language_model.layers.2.mlp.up_proj.weight"),
        (BOTH, "lm_head.weight"),
    ],
)
def test_missing_weights_are_refused_by_name(copy: Path, roles: tuple[str, ...], lost: str) -> None:
    tensors = weights(copy)
    del tensors[lost]
    replace_weights(copy, tensors)

    with pytest.raises(UnsupportedCheckpoint, match=lost):
        load_parts(copy, roles, "float32", ignore)


def test_weights_of_the_other_role_are_not_missed(copy: Path) -> None:
    tensors = weights(copy)
    del tensors["lm_head.weight"]
    replace_weights(copy, tensors)

    assert load_parts(copy, ("vision",), "float32", ignore).lm_head is None


def test_left_over_weights_are_refused(copy: Path) -> None:
    replace_weights(copy, weights(copy) | {"model.visual.adapter.weight": torch.zeros(3)})

    with pytest.raises(UnsupportedCheckpoint, match="adapter"):
        load_parts(copy, BOTH, "float32", ignore)


def test_weights_of_another_shape_are_refused(copy: Path) -> None:
    replace_weights(copy, weights(copy) | {"lm_head.weight": torch.zeros(5, 5)})

    with pytest.raises(UnsupportedCheckpoint, match=r"mismatched keys .*lm_head\.weight"):
        load_parts(copy, BOTH, "float32", ignore)


def test_a_setting_of_a_wrong_type_is_refused_in_one_line(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["rms_norm_eps"] = "small"
    (copy / "config.json").write_text(json.dumps(config))

    with pytest.raises(UnsupportedCheckpoint, match="rms_norm_eps") as caught:
        load_parts(copy, BOTH, "float32", ignore)
    assert "\n" not in str(caught.value)


def test_truncated_weights_are_refused(copy: Path) -> None:
    shard = sorted(copy.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-1000])

    with pytest.raises(UnsupportedCheckpoint, match="cannot load"):
        load_parts(copy, BOTH, "float32", ignore)


def test_folder_without_weights_is_refused(copy: Path) -> None:
    for file in copy.glob("model*"):
        file.unlink()

    with pytest.raises(UnsupportedCheckpoint, match="safetensors"):
        load_parts(copy, BOTH, "float32", ignore)


def test_an_index_that_names_no_weights_is_refused(copy: Path) -> None:
    for file in copy.glob("model*.safetensors"):
        file.unlink()
    (copy / "model.safetensors.index.json").write_text("{}")

    with pytest.raises(UnsupportedCheckpoint, match="cannot load"):
        load_parts(copy, BOTH, "float32", ignore)


def test_pickled_weights_are_never_read(copy: Path) -> None:
    tensors = weights(copy)
    for file in copy.glob("model*"):
        file.unlink()
    torch.save(tensors, copy / "pytorch_model.bin")

    with pytest.raises(UnsupportedCheckpoint, match="cannot load"):
        load_parts(copy, BOTH, "float32", ignore)


@pytest.mark.parametrize("roles", [("vision",), ("language",), BOTH])
def test_tied_embeddings_load_in_every_role(copy: Path, roles: tuple[str, ...]) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (copy / "config.json").write_text(json.dumps(config))
    tensors = weights(copy)
    del tensors["lm_head.weight"]
    replace_weights(copy, tensors)

    loaded = load_parts(copy, roles, "float32", ignore)

    if "language" in roles:
        assert loaded.lm_head.weight is loaded.model.language_model.embed_tokens.weight
    if "vision" in roles:
        assert loaded.model.visual is not None


def test_progress_ends_complete_and_nothing_is_drawn(
    checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[int, int]] = []

    load_parts(checkpoint, BOTH, "float32", lambda done, total: calls.append((done, total)))

    total = calls[-1][1]
    assert calls == [(done, total) for done in range(total + 1)]
    assert total > 30
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("requested", "loaded"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_dtype_is_as_requested_and_float32_by_default_on_cpu(
    tmp_path: Path, requested: str, loaded: torch.dtype
) -> None:
    path = make_checkpoint(tmp_path, "qwen3_vl", dtype="bfloat16")

    models = load_models(path, ("vision",), "cpu", requested, ignore)

    assert models.text is None
    assert models.vision is not None
    assert models.vision.dtype == loaded


def test_both_roles_share_one_load_and_keep_their_own_attention(
    checkpoint: Path, original: Any
) -> None:
    num_calls = 0

    def count(_done: int, _total: int) -> None:
        nonlocal num_calls
        num_calls += 1

    models = load_models(checkpoint, BOTH, "cpu", "auto", count)

    assert num_calls == len(list(original.named_parameters())) + 1
    assert models.vision is not None
    assert models.text is not None
    assert models.text.num_deepstack_levels == models.vision.num_levels - 1
    assert models.text.hidden_size == models.vision.hidden_size
    patches = torch.randn(24, original.model.visual.patch_embed.proj.weight[0].numel())
    output = original.model.get_image_features(patches, torch.tensor([[1, 4, 6]]))
    torch.testing.assert_close(
        models.vision.encode(patches, [(1, 4, 6)])[0][0],
        output.pooler_output[0],
        rtol=0,
        atol=1e-5,
    )


@pytest.mark.parametrize("num_levels", [0, 2])
def test_language_alone_knows_the_deepstack_levels(tmp_path: Path, num_levels: int) -> None:
    path = make_checkpoint(tmp_path, "qwen3_vl" if num_levels else "qwen2_5_vl")

    models = load_models(path, ("language",), "cpu", "auto", ignore)

    assert models.vision is None
    assert models.text is not None
    assert models.text.num_deepstack_levels == num_levels


def test_quantised_checkpoint_is_refused_before_reading_weights(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "gptq"}
    (copy / "config.json").write_text(json.dumps(config))

    with pytest.raises(UnsupportedCheckpoint, match="gptq"):
        load_parts(copy, BOTH, "float32", ignore)
