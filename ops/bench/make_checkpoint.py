"""A small random Qwen2.5-VL checkpoint for load tests: `python -m ops.bench.make_checkpoint DIR`.

The folder has the layout of the family's public checkpoints (config, safetensors, tokenizer,
image settings, chat template), so that any server of the family loads it. Nothing is
downloaded: the tokenizer learns its merges from Python's own standard library.

Under greedy decoding it never says the end of a turn, another special token, or bytes that are
no printable ASCII. So every request runs to its max_tokens on every server, and no server holds
text back until a character is whole.
"""

import argparse
import json
import math
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, trainers
from tokenizers import pre_tokenizers as splitters
from transformers import (
    GenerationConfig,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
)

LEARNED_TOKENS = 4064
LEARN_FROM_BYTES = 3_000_000
CONTEXT_TOKENS = 32768
HIDDEN = 256
LAYERS = 4
HEADS = 4
MAX_PIXELS = 802816  # 1536x1024 becomes 1092x728, 1014 tokens
END_OF_TURN, PAD = "<|im_end|>", "<|endoftext|>"

SPECIAL_TOKENS = (
    PAD, "<|im_start|>", END_OF_TURN, "<|vision_start|>", "<|vision_end|>",
    "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip

# How the family cuts text before merging: words, single digits, punctuation, line ends.
WORD_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{%- if loop.first and message.role != 'system' -%}
{{- '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' -}}
{%- endif -%}
{{- '<|im_start|>' + message.role + '\\n' -}}
{%- if message.content is string -%}
{{- message.content -}}
{%- else -%}
{%- for part in message.content -%}
{%- if part.type in ('image', 'image_url') -%}
{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}
{%- elif part.type in ('video', 'video_url') -%}
{{- '<|vision_start|><|video_pad|><|vision_end|>' -}}
{%- elif part.type == 'text' -%}
{{- part.text -}}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{- '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""


def library_texts() -> Iterator[str]:
    """Source files of the standard library, about LEARN_FROM_BYTES of them."""
    root = Path(sysconfig.get_path("stdlib"))
    num_bytes = 0
    for path in sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py")):
        if "site-packages" not in path.parts and num_bytes < LEARN_FROM_BYTES:
            text = path.read_text("utf-8", errors="ignore")
            num_bytes += len(text)
            yield text


def train_tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with the family's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = splitters.Sequence(
        [
            splitters.Split(Regex(WORD_PATTERN), behavior="isolated"),
            splitters.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=LEARNED_TOKENS,
        show_progress=False,
        initial_alphabet=sorted(splitters.ByteLevel.alphabet()),
    )
    tokenizer.train_from_iterator(library_texts(), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL_TOKENS])
    return tokenizer


def write_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """The tokenizer's files in both spellings: one JSON file, and vocabulary with merges."""
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.model.save(str(folder))
    settings = {
        "tokenizer_class": "Qwen2Tokenizer",
        "model_max_length": CONTEXT_TOKENS,
        "bos_token": None,
        "unk_token": None,
        "eos_token": END_OF_TURN,
        "pad_token": PAD,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token,
                "lstrip": False,
                "normalized": False,
                "rstrip": False,
                "single_word": False,
                "special": True,
            }
            for token in SPECIAL_TOKENS
        },
    }
    _write_json(folder / "tokenizer_config.json", settings)
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE)


def write_image_settings(folder: Path, max_pixels: int) -> None:
    """The family's patch geometry and colour statistics, with a cap on pixels per image."""
    min_pixels = 3136
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": "Qwen2_5_VLProcessor",
        "patch_size": 14,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": min_pixels,
        "max_pixels": max_pixels,
        "size": {"shortest_edge": min_pixels, "longest_edge": max_pixels},
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    }
    _write_json(folder / "preprocessor_config.json", settings)


def make_config(tokenizer: Tokenizer, num_tower_layers: int = LAYERS) -> Qwen2_5_VLConfig:
    """Half the parameters see, half read. Weights spread as 1/sqrt(width), not 0.02: the logits
    then differ enough for an answer to depend on its image."""
    text = {
        "vocab_size": 64 * math.ceil(tokenizer.get_vocab_size() / 64),
        "hidden_size": HIDDEN,
        "intermediate_size": 3 * HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2,
        "max_position_embeddings": CONTEXT_TOKENS,
        "rms_norm_eps": 1e-6,
        "initializer_range": 1 / math.sqrt(HIDDEN),
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e6,
            "mrope_section": [8, 12, 12],
        },
        "bos_token_id": tokenizer.token_to_id(PAD),
        "eos_token_id": tokenizer.token_to_id(END_OF_TURN),
        "tie_word_embeddings": False,
    }
    vision = {
        "depth": num_tower_layers,
        "hidden_size": HIDDEN,
        "num_heads": HEADS,
        "intermediate_size": 2 * HIDDEN,
        "out_hidden_size": HIDDEN,
        "patch_size": 14,
        "window_size": 112,
        "tokens_per_second": 2,
        "fullatt_block_indexes": [layer for layer in (1, 3) if layer < num_tower_layers],
        "initializer_range": 1 / math.sqrt(HIDDEN),
    }
    return Qwen2_5_VLConfig(
        text_config=text,
        vision_config=vision,
        image_token_id=tokenizer.token_to_id("<|image_pad|>"),
        video_token_id=tokenizer.token_to_id("<|video_pad|>"),
        vision_start_token_id=tokenizer.token_to_id("<|vision_start|>"),
        vision_end_token_id=tokenizer.token_to_id("<|vision_end|>"),
        tie_word_embeddings=False,
        dtype="bfloat16",
    )


def unsayable(tokenizer: Tokenizer, num_rows: int) -> list[int]:
    """Ids that greedy decoding must not choose: special, unused, or no printable ASCII."""
    sayable = {
        token_id
        for token_id in range(tokenizer.get_vocab_size())
        if _is_plain(tokenizer.decode([token_id]))
    }
    return [token_id for token_id in range(num_rows) if token_id not in sayable]


def _is_plain(text: str) -> bool:
    # A special token decodes to nothing.
    return bool(text) and all(character in "\n\t" or " " <= character <= "~" for character in text)


def make_model(tokenizer: Tokenizer, num_tower_layers: int, seed: int) -> Any:
    """The model with random weights; the output rows of unsayable tokens are zero, so that their
    logit is 0 where the best of thousands of others is far above."""
    torch.manual_seed(seed)
    model = Qwen2_5_VLForConditionalGeneration(make_config(tokenizer, num_tower_layers))
    with torch.no_grad():
        rows = model.lm_head.weight  # [tokens, hidden], float32
        rows[unsayable(tokenizer, rows.shape[0])] = 0.0
    model.generation_config = GenerationConfig(
        do_sample=False,
        eos_token_id=tokenizer.token_to_id(END_OF_TURN),
        pad_token_id=tokenizer.token_to_id(PAD),
    )
    return model.to(torch.bfloat16)


def make_checkpoint(
    folder: Path, max_pixels: int = MAX_PIXELS, num_tower_layers: int = LAYERS, seed: int = 1
) -> int:
    """Write the checkpoint and return its number of parameters."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer()
    model = make_model(tokenizer, num_tower_layers, seed)
    model.save_pretrained(folder)
    write_tokenizer(tokenizer, folder)
    write_image_settings(folder, max_pixels)
    return sum(parameter.numel() for parameter in model.parameters())


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def main() -> None:
    """Make the checkpoint that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.make_checkpoint")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--max-pixels", type=int, default=MAX_PIXELS, help="of one image")
    parser.add_argument("--tower-layers", type=int, default=LAYERS,
                        help="1: light, with windows alone; on a CPU as if on a GPU")  # fmt: skip
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    num_parameters = make_checkpoint(
        arguments.folder, arguments.max_pixels, arguments.tower_layers, arguments.seed
    )
    print(f"{arguments.folder}: {num_parameters / 1e6:.1f} million parameters")


if __name__ == "__main__":
    main()
