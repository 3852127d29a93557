"""Tiny random checkpoints that transformers itself can load, one per model type.

Weights are spread so that greedy answers depend on the images and hardly ever tie; the tokenizer
is the demo model's, the template is of the family's public form.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers

from config.settings import DEMO_MODEL
from tests.kimi_checkpoint import make_kimi_checkpoint

TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and message.role != 'system' %}<|im_start|>system\n"
    "You are a helpful assistant.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ message.role }}\n"
    "{% if message.content is string %}{{ message.content }}"
    "{% else %}{% for content in message.content %}"
    "{% if content.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>"
    "{% elif content.type == 'text' %}{{ content.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TOKENS = {
    "image_token_id": 766,
    "video_token_id": 767,
    "vision_start_token_id": 763,
    "vision_end_token_id": 764,
}
MODEL_TYPES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
ALL_MODEL_TYPES = (*MODEL_TYPES, "kimi_k25")
PATCH_SIZES = {"qwen2_vl": 14, "qwen2_5_vl": 14, "qwen3_vl": 16}


def make_checkpoint(folder: Path, model_type: str, dtype: str = "float32", seed: int = 0) -> Path:
    """Write a random checkpoint of `model_type` below `folder`, in shards; return its path."""
    if model_type == "kimi_k25":
        return make_kimi_checkpoint(folder, dtype, seed)
    path = folder / f"tiny-{model_type}-{dtype}-{seed}"
    torch.manual_seed(seed)
    model = _model(model_type).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, 0.35 if "embed_tokens" in name else 0.12)
    model.to(getattr(torch, dtype)).save_pretrained(path, max_shard_size="400KB")
    _write_processor(path, model_type)
    return path


def _model(model_type: str) -> Any:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 3, 3]}
    text: dict[str, Any] = {
        "vocab_size": 768,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "pad_token_id": 760,
        "bos_token_id": 760,
        "eos_token_id": 762,
        "tie_word_embeddings": False,
    }
    vision: dict[str, Any] = {"depth": 4, "num_heads": 2, "patch_size": PATCH_SIZES[model_type]}
    if model_type == "qwen2_vl":
        vision |= {"embed_dim": 32, "hidden_size": 64, "mlp_ratio": 2}
        config = transformers.Qwen2VLConfig(
            text_config=text | {"rope_parameters": rope}, vision_config=vision, **TOKENS
        )
        return transformers.Qwen2VLForConditionalGeneration(config)
    vision |= {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 64}
    if model_type == "qwen2_5_vl":
        vision |= {"window_size": 56, "fullatt_block_indexes": [1, 3]}
        config = transformers.Qwen2_5_VLConfig(
            text_config=text | {"rope_parameters": rope}, vision_config=vision, **TOKENS
        )
        return transformers.Qwen2_5_VLForConditionalGeneration(config)
    vision |= {"num_position_embeddings": 64, "deepstack_visual_indexes": [0, 2]}
    text |= {"head_dim": 16, "rope_parameters": rope | {"mrope_interleaved": True}}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **TOKENS)
    return transformers.Qwen3VLForConditionalGeneration(config)


def _write_processor(path: Path, model_type: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEMO_MODEL / name, path / name)
    (path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (path / "generation_config.json").write_text(
        json.dumps({"do_sample": False, "eos_token_id": [762, 760], "pad_token_id": 760}),
        encoding="utf-8",
    )
    patch = PATCH_SIZES[model_type]
    names = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}
    preprocessor = {
        "image_processor_type": "Qwen2VLImageProcessor",
        "processor_class": f"{names[model_type]}Processor",
        "do_resize": True,
        "do_rescale": True,
        "do_normalize": True,
        "do_convert_rgb": True,
        "rescale_factor": 1 / 255,
        "resample": 3,
        # CLIP's, as the family's public checkpoints have them; qwen3_vl uses one half.
        "image_mean": [0.48145466, 0.4578275, 0.40821073] if patch == 14 else [0.5, 0.5, 0.5],
        "image_std": [0.26862954, 0.26130258, 0.27577711] if patch == 14 else [0.5, 0.5, 0.5],
        "patch_size": patch,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "min_pixels": 4 * (2 * patch) ** 2,
        "max_pixels": 64 * (2 * patch) ** 2,
    }
    (path / "preprocessor_config.json").write_text(json.dumps(preprocessor), encoding="utf-8")
