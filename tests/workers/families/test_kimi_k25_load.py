"""A worker loads the half of a Kimi checkpoint that it needs, in either spelling, or refuses it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import Tensor

from tests.kimi_checkpoint import IMAGE_TOKEN, make_kimi_checkpoint
from workers.families import UnsupportedCheckpoint
from workers.families.kimi_k25.load import load_models, load_parts

BOTH = ("vision", "language")
VISION = ("model.vision_tower.", "model.mm_projector.")
LANGUAGE = ("model.language_model.", "lm_head.")
ROLES = [(("vision",), VISION), (("language",), LANGUAGE), (BOTH, VISION + LANGUAGE)]
Weights = dict[str, Tensor]
RENAMED = {  # today's names -> the public checkpoints', one after the other
    "mm_projector.in_proj": "mm_projector.proj.0",
    "mm_projector.out_proj": "mm_projector.proj.2",
    "pos_emb.position_embeddings": "pos_emb.weight",
    "vision_tower.layers": "vision_tower.encoder.blocks",
    "vision_tower.final_layernorm": "vision_tower.encoder.final_layernorm",
    "norm1": "norm0",
    "norm2": "norm1",
    "fc1": "fc0",
    "fc2": "fc1",
    "attn.proj": "wo",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kimi_checkpoint(tmp_path_factory.mktemp("load"))


@pytest.fixture(scope="module")
def original(checkpoint: Path) -> Any:
    return transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype="float32")


@pytest.fixture
def copy(checkpoint: Path, tmp_path: Path) -> Path:
    """A copy to be changed by a test."""
    return Path(shutil.copytree(checkpoint, tmp_path / "copy"))


def ignore(_done: int, _total: int) -> None:
    pass


def replace_weights(path: Path, tensors: Weights) -> None:
    """Put `tensors` in place of all shards."""
    for file in path.glob("model*.safetensors*"):
        file.unlink()
    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(contiguous, path / "model.safetensors", metadata={"format": "pt"})


def early_names(original: Any) -> Weights:
    """The weights as the public checkpoints store them."""
    weights: Weights = {}
    for name, tensor in original.state_dict().items():
        if name.startswith("model.language_model"):
            name = name.replace("model.language_model", "language_model.model")
            weights |= split_experts(name, tensor)
        elif name.startswith("lm_head"):
            weights[f"language_model.{name}"] = tensor
        else:
            weights[early_vision_name(name)] = tensor
    return join_attention(weights, original.config.vision_config.num_attention_heads)


def early_vision_name(name: str) -> str:
    name = name.removeprefix("model.")
    for late, early in RENAMED.items():
        name = name.replace(late, early)
    return name


def split_experts(name: str, tensor: Tensor) -> Weights:
    """One matrix per expert and projection where today's module has them stacked."""
    if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
        return {name: tensor}
    base, _, last = name.rpartition(".")
    parts = ("gate_proj", "up_proj") if last == "gate_up_proj" else ("down_proj",)
    return {
        f"{base}.{index}.{part}.weight": matrix
        for index, expert in enumerate(tensor)
        for part, matrix in zip(parts, expert.chunk(len(parts)), strict=True)
    }


def join_attention(weights: Weights, num_heads: int) -> Weights:
    """Queries, keys and values in one; the two of a rotated pair lie side by side."""
    joined: Weights = {}
    for name, tensor in weights.items():
        if ".attn." not in name:
            joined[name] = tensor
        elif ".q_proj." in name:
            pair = (tensor, weights[name.replace("q_proj", "k_proj")])
            rotated = [_pairs_together(each, num_heads) for each in pair]
            values = weights[name.replace("q_proj", "v_proj")]
            joined[name.replace("attn.q_proj", "wqkv")] = torch.cat([*rotated, values])
    return joined


def _pairs_together(tensor: Tensor, num_heads: int) -> Tensor:
    """Rows of each head: halves that are rotated together -> neighbours that are."""
    halves = tensor.reshape(num_heads, 2, -1, *tensor.shape[1:])
    return halves.transpose(1, 2).reshape(tensor.shape)


def late_names(original: Any) -> Weights:
    """The weights as the modules hold them today."""
    return dict(original.state_dict())


def assert_equal_weights(loaded: Any, original: Any, prefixes: tuple[str, ...]) -> None:
    """`loaded` has exactly the original's weights that start with `prefixes`."""
    expected = {n: w for n, w in original.state_dict().items() if n.startswith(prefixes)}
    found = loaded.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("roles", "prefixes"), ROLES)
def test_each_role_gets_its_weights_and_no_others(
    checkpoint: Path, original: Any, roles: tuple[str, ...], prefixes: tuple[str, ...]
) -> None:
    assert_equal_weights(load_parts(checkpoint, roles, "float32", ignore), original, prefixes)


@pytest.mark.parametrize("spelling", [early_names, late_names])
@pytest.mark.parametrize(("roles", "prefixes"), ROLES)
def test_public_and_todays_weight_names_load_alike(
    copy: Path,
    original: Any,
    roles: tuple[str, ...],
    prefixes: tuple[str, ...],
    spelling: Callable[[Any], Weights],
) -> None:
    replace_weights(copy, spelling(original))
    assert_equal_weights(load_parts(copy, roles, "float32", ignore), original, prefixes)


def test_a_config_of_the_public_spelling_loads(copy: Path, original: Any) -> None:
    config = json.loads((copy / "config.json").read_text())
    vision = config["vision_config"]
    config["vision_config"] = {
        "vt_hidden_size": vision["hidden_size"],
        "vt_intermediate_size": vision["intermediate_size"],
        "vt_num_attention_heads": vision["num_attention_heads"],
        "vt_num_hidden_layers": vision["num_hidden_layers"],
        "init_pos_emb_height": vision["pos_emb_height"],
        "init_pos_emb_width": vision["pos_emb_width"],
        "init_pos_emb_time": vision["pos_emb_time"],
        "merge_kernel_size": vision["merge_kernel_size"],
        "mm_hidden_size": vision["hidden_size"],
        "mm_projector_type": "patchmerger",
        "model_type": "",
        "patch_size": vision["patch_size"],
        "pos_emb_type": "divided_fixed",
        "projector_hidden_act": "gelu",
        "projector_ln_eps": 1e-5,
        "text_hidden_size": config["text_config"]["hidden_size"],
    }
    text = config["text_config"] | {"model_type": "kimi_k2"}
    text["rope_scaling"] = text.pop("rope_parameters")
    text["rope_theta"] = text["rope_scaling"].pop("rope_theta")
    text["rope_scaling"]["type"] = text["rope_scaling"].pop("rope_type")
    config["text_config"] = text
    for name in ("image_token_id", "projection_hidden_size", "tie_word_embeddings"):
        del config[name]
    config["media_placeholder_token_id"] = IMAGE_TOKEN
    (copy / "config.json").write_text(json.dumps(config))
    replace_weights(copy, early_names(original))

    loaded = load_parts(copy, BOTH, "float32", ignore)

    assert_equal_weights(loaded, original, VISION + LANGUAGE)
    assert loaded.config.image_token_id == IMAGE_TOKEN
    rope = original.config.text_config.rope_parameters
    assert rope.items() <= loaded.config.text_config.rope_parameters.items()


@pytest.mark.parametrize(
    ("roles", "lost"),
    [
        (("vision",), "model.vision_tower.layers.1.norm1.weight"),
        (("vision",), "model.mm_projector.in_proj.bias"),
        (("language",), "model.language_model.layers.2.mlp.gate.weight"),
        (BOTH, "lm_head.weight"),
    ],
)
def test_missing_weights_are_refused_by_name(
    copy: Path, original: Any, roles: tuple[str, ...], lost: str
) -> None:
    tensors = late_names(original)
    del tensors[lost]
    replace_weights(copy, tensors)
    with pytest.raises(UnsupportedCheckpoint, match=lost):
        load_parts(copy, roles, "float32", ignore)


def test_weights_of_the_other_role_are_not_missed(copy: Path, original: Any) -> None:
    vision = {n: w for n, w in early_names(original).items() if not n.startswith("language_model")}
    replace_weights(copy, vision)
    loaded = load_parts(copy, ("vision",), "float32", ignore)
    assert loaded.lm_head is None
    assert loaded.model.language_model is None


def test_left_over_weights_are_refused(copy: Path, original: Any) -> None:
    extra = {"vision_tower.encoder.adapter.weight": torch.zeros(3)}
    replace_weights(copy, early_names(original) | extra)
    with pytest.raises(UnsupportedCheckpoint, match="adapter"):
        load_parts(copy, BOTH, "float32", ignore)


def test_weights_of_another_shape_are_refused(copy: Path, original: Any) -> None:
    replace_weights(copy, late_names(original) | {"lm_head.weight": torch.zeros(5, 5)})
    with pytest.raises(UnsupportedCheckpoint, match=r"mismatched keys .*lm_head\.weight"):
        load_parts(copy, BOTH, "float32", ignore)


def test_a_setting_of_a_wrong_type_is_refused_in_one_line(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["text_config"]["rms_norm_eps"] = "small"
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedCheckpoint, match="rms_norm_eps") as caught:
        load_parts(copy, BOTH, "float32", ignore)
    assert "\n" not in str(caught.value)


def test_quantised_checkpoint_is_refused_before_reading_weights(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "compressed-tensors"}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedCheckpoint, match=r"compressed-tensors.*bfloat16"):
        load_parts(copy, BOTH, "float32", ignore)


def test_a_fixed_number_of_tokens_is_refused(copy: Path) -> None:
    (copy / "preprocessor_config.json").write_text(
        json.dumps({"media_proc_cfg": {"fixed_output_tokens": 64}})
    )
    with pytest.raises(UnsupportedCheckpoint, match="fixed_output_tokens"):
        load_parts(copy, ("vision",), "float32", ignore)


def test_progress_ends_complete_and_nothing_is_drawn(
    checkpoint: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    calls: list[tuple[int, int]] = []
    load_parts(checkpoint, BOTH, "float32", lambda done, total: calls.append((done, total)))
    total = calls[-1][1]
    assert calls == [(done, total) for done in range(total + 1)]
    assert total > 50
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("requested", "loaded"),
    [("auto", torch.float32), ("float32", torch.float32), ("bfloat16", torch.bfloat16)],
)
def test_dtype_is_as_requested_and_float32_by_default_on_cpu(
    tmp_path: Path, requested: str, loaded: torch.dtype
) -> None:
    path = make_kimi_checkpoint(tmp_path, dtype="bfloat16")
    models = load_models(path, ("vision",), "cpu", requested, ignore)
    assert models.text is None
    assert models.vision is not None
    assert models.vision.dtype == loaded
    assert load_parts(path, ("vision",), "auto", ignore).dtype == torch.bfloat16


def test_both_roles_come_out_of_one_load(checkpoint: Path, original: Any) -> None:
    models = load_models(checkpoint, BOTH, "cpu", "auto", ignore)
    assert models.vision is not None
    assert models.text is not None
    assert models.text.hidden_size == models.vision.hidden_size
    patches = torch.randn(24, 3, 14, 14)
    output = original.model.get_image_features(patches, torch.tensor([[1, 4, 6]]))
    embeddings = models.vision.encode(patches.flatten(1), [(1, 4, 6)])[0][0]
    torch.testing.assert_close(embeddings, output.pooler_output[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("roles", [("vision",), ("language",), BOTH])
def test_tied_embeddings_load_in_every_role(
    copy: Path, original: Any, roles: tuple[str, ...]
) -> None:
    config = json.loads((copy / "config.json").read_text())
    config["tie_word_embeddings"] = config["text_config"]["tie_word_embeddings"] = True
    (copy / "config.json").write_text(json.dumps(config))
    tensors = late_names(original)
    del tensors["lm_head.weight"]
    replace_weights(copy, tensors)

    loaded = load_parts(copy, roles, "float32", ignore)

    if "language" in roles:
        assert loaded.lm_head.weight is loaded.model.language_model.embed_tokens.weight
    if "vision" in roles:
        assert loaded.model.vision_tower is not None
