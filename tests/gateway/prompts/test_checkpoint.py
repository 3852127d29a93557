"""A checkpoint folder tells the gateway what it needs, in every form that folders have."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, normalizers

from config.settings import DEMO_MODEL
from gateway.prompts.checkpoint import load_checkpoint
from gateway.prompts.sampling import SamplingDefaults
from workers.families import UnsupportedCheckpoint

MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The demo model's folder without its weights, to change at will."""
    for file in DEMO_MODEL.iterdir():
        if file.suffix in (".json", ".jinja"):
            shutil.copy(file, tmp_path)
    return tmp_path


def change(path: Path, **values: Any) -> None:
    """Set keys of a JSON file; a value of None takes the key out."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= values
    kept = {name: value for name, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))


def test_the_demo_model_loads() -> None:
    checkpoint = load_checkpoint(DEMO_MODEL)
    assert checkpoint.sampling_defaults == SamplingDefaults(0.0, 1.0, 0, (762, 760))
    assert checkpoint.layout.image_token_id == 766
    assert checkpoint.control.ids == frozenset(range(760, 768))
    assert checkpoint.template.special_tokens["eos_token"] == "<|im_end|>"


def test_a_folder_without_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedCheckpoint, match=r"no tokenizer\.json"):
        load_checkpoint(folder)


def test_a_broken_tokenizer_is_refused(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UnsupportedCheckpoint, match=r"cannot read .*tokenizer\.json"):
        load_checkpoint(folder)


def test_a_decoder_that_is_not_byte_level_is_refused(folder: Path) -> None:
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(path)
    with pytest.raises(UnsupportedCheckpoint, match="byte-level"):
        load_checkpoint(folder)


def test_a_special_token_with_many_spellings_is_refused(folder: Path) -> None:
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.add_special_tokens([AddedToken("<eot>", normalized=True)])
    tokenizer.save(path)
    with pytest.raises(UnsupportedCheckpoint, match="'<eot>' is normalised"):
        load_checkpoint(folder)


@pytest.mark.parametrize("wrong", [40, 764, 10**6])
def test_the_tokenizers_own_placeholder_counts_and_the_difference_is_logged(
    folder: Path, wrong: int, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_checkpoint(folder).image_token_id == 766
    assert not caplog.records
    change(folder / "config.json", image_token_id=wrong)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.image_token_id == 766
    assert 766 in checkpoint.control.ids
    (record,) = caplog.records
    assert f"names token {wrong} for images" in record.getMessage()


def test_a_tokenizer_without_image_placeholder_is_refused(folder: Path) -> None:
    path = folder / "tokenizer.json"
    path.write_text(path.read_text().replace("<|image_pad|>", "<|picture|>"))
    change(folder / "config.json", image_token_id=40)
    with pytest.raises(UnsupportedCheckpoint, match="no token for images"):
        load_checkpoint(folder)


def test_truncation_and_padding_of_the_file_are_off(folder: Path) -> None:
    path = str(folder / "tokenizer.json")
    tokenizer = Tokenizer.from_file(path)
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    tokenizer.save(path)
    assert len(load_checkpoint(folder).tokenizer.encode("7" * 8).ids) == 8


@pytest.mark.parametrize(
    ("file", "values"),
    [
        ("tokenizer_config.json", {"extra_special_tokens": ["<tool>"]}),
        ("tokenizer_config.json", {"extra_special_tokens": {"tool_token": "<tool>"}}),
        (
            "tokenizer_config.json",
            {"extra_special_tokens": None, "additional_special_tokens": [{"content": "<tool>"}]},
        ),
        ("tokenizer_config.json", {"bos_token": {"content": "<tool>", "lstrip": False}}),
        ("special_tokens_map.json", {"sep_token": "<tool>"}),
    ],
)
def test_tokens_that_the_tokenizer_config_calls_special_are(
    folder: Path, file: str, values: dict[str, Any]
) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken("<tool>", lstrip=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    assert 768 not in load_checkpoint(folder).control.ids
    change(folder / file, **values)
    checkpoint = load_checkpoint(folder)
    assert 768 in checkpoint.control.ids
    token = checkpoint.tokenizer.get_added_tokens_decoder()[768]
    assert (token.lstrip, token.special) == (True, True)


def test_special_names_unknown_to_the_tokenizer_add_nothing(folder: Path) -> None:
    change(folder / "tokenizer_config.json", unk_token="<nowhere>")
    assert load_checkpoint(folder).tokenizer.get_vocab_size() == 768


def test_placeholders_that_only_the_configuration_names_are_control_tokens(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens(["<film>", "<tool>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    change(folder / "config.json", video_token_id=768)
    checkpoint = load_checkpoint(folder)
    assert checkpoint.control.ids == frozenset(range(760, 769))
    assert checkpoint.control.pattern.search("a <film>")
    assert not checkpoint.control.pattern.search("a <tool>")


def test_the_longest_control_token_is_matched_first(folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens(["<|im_end|><|end|>"])
    tokenizer.save(str(folder / "tokenizer.json"))
    match = load_checkpoint(folder).control.pattern.search("<|im_end|><|end|>")
    assert match is not None
    assert match.group() == "<|im_end|><|end|>"


NAMED = [
    {"name": "tool_use", "template": "tools"},
    {"name": "default", "template": "from the list"},
]


def test_templates_are_found_in_every_place_in_order(folder: Path) -> None:
    def rendered() -> str:
        return load_checkpoint(folder).template.render(MESSAGES)

    change(folder / "tokenizer_config.json", chat_template=NAMED)
    change(folder / "chat_template.json", chat_template="from the object")
    (folder / "chat_template.jinja").write_text("from the file")
    assert rendered() == "from the file"
    (folder / "chat_template.jinja").unlink()
    assert rendered() == "from the object"
    (folder / "chat_template.json").unlink()
    assert rendered() == "from the list"
    change(folder / "tokenizer_config.json", chat_template="from the string")
    assert rendered() == "from the string"
    change(folder / "tokenizer_config.json", chat_template=NAMED[:1])
    with pytest.raises(UnsupportedCheckpoint, match="no chat template"):
        rendered()


SAMPLED = {"do_sample": True, "temperature": 0.1, "top_p": 0.9, "top_k": 5}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (SAMPLED, (0.1, 0.9, 5)),
        (SAMPLED | {"temperature": None, "top_k": None}, (1.0, 0.9, 0)),
        (SAMPLED | {"do_sample": False}, (0.0, 1.0, 0)),
        (SAMPLED | {"do_sample": None}, (0.0, 1.0, 0)),
    ],
)
def test_sampling_is_greedy_unless_the_checkpoint_samples(
    folder: Path, values: dict[str, Any], expected: tuple[float, float, int]
) -> None:
    change(folder / "generation_config.json", **values)
    defaults = load_checkpoint(folder).sampling_defaults
    assert (defaults.temperature, defaults.top_p, defaults.top_k) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"do_sample": True, "min_p": 0.1, "repetition_penalty": 1.05}, (0.1, 1.05)),
        ({"do_sample": False, "min_p": 0.1, "repetition_penalty": 1.05}, (0.0, 1.05)),
        ({"do_sample": True}, (0.0, 1.0)),
    ],
)
def test_a_repetition_penalty_applies_to_greedy_answers_too(
    folder: Path, values: dict[str, Any], expected: tuple[float, float]
) -> None:
    change(folder / "generation_config.json", **values)
    defaults = load_checkpoint(folder).sampling_defaults
    assert (defaults.min_p, defaults.repetition_penalty) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", "warm"),
        ("temperature", -1),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", 1.1),
        ("repetition_penalty", 0),
    ],
)
def test_a_sampling_number_out_of_range_is_refused(folder: Path, name: str, value: Any) -> None:
    change(folder / "generation_config.json", do_sample=True, **{name: value})
    with pytest.raises(UnsupportedCheckpoint, match=f"{name} '?{value}'? is out of range"):
        load_checkpoint(folder)


def test_ends_are_found_in_every_place_in_order(folder: Path) -> None:
    def ends() -> tuple[int, ...]:
        return load_checkpoint(folder).sampling_defaults.eos_token_ids

    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", eos_token_id=[1, 2])
    change(folder / "generation_config.json", eos_token_id=3)
    assert ends() == (3,)
    (folder / "generation_config.json").unlink()
    assert ends() == (1, 2)
    change(folder / "config.json", eos_token_id=None)
    assert ends() == (762,)
    change(folder / "config.json", text_config=config["text_config"] | {"eos_token_id": None})
    change(folder / "tokenizer_config.json", eos_token="<|endoftext|>")
    assert ends() == (760,)
    change(folder / "tokenizer_config.json", eos_token=None)
    assert ends() == ()


@pytest.mark.slow
@pytest.mark.parametrize("ids", ["x", [1, None], 10**6, -1, 1.5, [[1]]])
def test_an_end_that_is_no_token_is_refused(folder: Path, ids: Any) -> None:
    change(folder / "generation_config.json", eos_token_id=ids)
    with pytest.raises(UnsupportedCheckpoint, match="eos_token_id"):
        load_checkpoint(folder)


def test_json_that_is_too_deep_is_refused(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(UnsupportedCheckpoint, match=r"config\.json"):
        load_checkpoint(folder)


def test_loading_and_building_need_no_torch() -> None:
    program = (
        "import sys; from pathlib import Path; import gateway.prompts.text, gateway.answers.sse;"
        "from gateway.prompts.checkpoint import load_checkpoint;"
        "load_checkpoint(Path(sys.argv[1]));"
        "print(sorted({'torch', 'transformers'} & sys.modules.keys()))"
    )
    command = [sys.executable, "-c", program, str(DEMO_MODEL)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert re.fullmatch(r"\[\]\s*", output.stdout)
