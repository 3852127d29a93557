"""A tiny random checkpoint of the Kimi-K2.5 kind that transformers itself can load.

Left at random such a model hardly looks at its images; the projector is scaled until it does. The
tokenizer is the demo model's with the family's control tokens, the template of its public form.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import AddedToken, Tokenizer

from config.settings import DEMO_MODEL

TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}<|im_user|>"
    "{%- elif message.role == 'assistant' -%}<|im_assistant|>"
    "{%- else -%}<|im_system|>{%- endif -%}"
    "{{ message.get('name') or message.role }}<|im_middle|>"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message.content -%}"
    "{%- if part.type == 'image' -%}"
    "{{ '<|media_begin|>image<|media_content|><|media_pad|><|media_end|>\\n' }}"
    "{%- else -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}<|im_end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}"
    "<|im_assistant|>assistant<|im_middle|>"
    "{{ '<think></think>' if thinking is defined and not thinking else '<think>' }}"
    "{%- endif -%}"
)
CONTROL_TOKENS = (  # ids from 768 on
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|media_begin|>",
    "<|media_content|>",
    "<|media_end|>",
    "<|media_pad|>",
    "<|kimi_k25_video_placeholder|>",
)
IMAGE_TOKEN = 775
END_TOKEN = 762  # <|im_end|>, which the demo model has as well
VOCABULARY = 784
TEXT: dict[str, Any] = {
    "model_type": "deepseek_v3",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "moe_intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "routed_scaling_factor": 2.827,
    "kv_lora_rank": 24,
    "q_lora_rank": 40,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 12,
    "max_position_embeddings": 4096,
    "num_nextn_predict_layers": 0,
    "rope_parameters": {  # the public checkpoints' kind
        "rope_type": "yarn",
        "rope_theta": 50000.0,
        "factor": 8.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 512,
    },
    "pad_token_id": 760,
    "bos_token_id": 760,
    "eos_token_id": END_TOKEN,
    "tie_word_embeddings": False,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "pos_emb_height": 8,
    "pos_emb_width": 8,
    "patch_size": 14,
    "merge_kernel_size": [2, 2],
}
PROCESSOR: dict[str, Any] = {
    "image_processor_type": "Kimi_K25ImageProcessor",
    "processor_class": "Kimi_K25Processor",
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "patch_size": 14,
    "merge_size": 2,
    "max_patches": 120,
    "size": {"max_height": 14, "max_width": 14},
}


def make_kimi_checkpoint(folder: Path, dtype: str = "float32", seed: int = 0) -> Path:
    """Write a random checkpoint below `folder`, in two shards or more; return its path."""
    path = folder / f"tiny-kimi_k25-{dtype}-{seed}"
    torch.manual_seed(seed)
    config = transformers.Kimi_K25Config(
        text_config=TEXT,
        vision_config=VISION,
        projection_hidden_size=32,
        image_token_id=IMAGE_TOKEN,
        video_token_id=IMAGE_TOKEN + 1,
        vision_start_token_id=772,
        vision_end_token_id=774,
        tie_word_embeddings=False,
    )
    model = transformers.Kimi_K25ForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, _spread(name))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0, 0.1)
    model.to(getattr(torch, dtype)).save_pretrained(path, max_shard_size="400KB")
    write_kimi_processor(path)
    return path


def _spread(name: str) -> float:
    """Standard deviation of a weight matrix; wide where images come in and where words do."""
    if "embed_tokens" in name:
        return 0.35
    if "position_embeddings" in name:
        return 0.3
    return 1.0 if "out_proj" in name else 0.12


def write_kimi_processor(path: Path) -> None:
    """Write everything but weights and config.json."""
    tokenizer = Tokenizer.from_file(str(DEMO_MODEL / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in CONTROL_TOKENS])
    tokenizer.save(str(path / "tokenizer.json"))
    shutil.copy(DEMO_MODEL / "tokenizer_config.json", path / "tokenizer_config.json")
    (path / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    generation = {"do_sample": False, "eos_token_id": [END_TOKEN, 760], "pad_token_id": 760}
    (path / "generation_config.json").write_text(json.dumps(generation), encoding="utf-8")
    (path / "preprocessor_config.json").write_text(json.dumps(PROCESSOR), encoding="utf-8")
