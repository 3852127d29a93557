"""Make the model anew or from a directory; write it as a Hugging Face directory; keep run state."""

import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from ops.demo_model.model import Learner, register_attention
from ops.demo_model.optimiser import Optimisers

SIDE_FILES = (
    *("config.json", "generation_config.json", "preprocessor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"),
)
STATE_FILE = "state.pt"


def load_model(directory: Path) -> Qwen3VLForConditionalGeneration:
    """The model of a directory, in float32, ready to train on."""
    return Qwen3VLForConditionalGeneration.from_pretrained(
        directory, dtype=torch.float32, attn_implementation=register_attention()
    ).train()


def new_model(directory: Path) -> Qwen3VLForConditionalGeneration:
    """A model of the directory's shape with fresh weights; the torch seed decides them."""
    config = Qwen3VLConfig.from_pretrained(directory)
    config._attn_implementation = register_attention()
    model = Qwen3VLForConditionalGeneration(config).float().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim >= 2:
                _start(name, parameter)
    return model


def _start(name: str, parameter: Tensor) -> None:
    fan_in = math.sqrt(parameter[0].numel())
    if "pos_embed" in name:
        parameter.copy_(_smooth_positions(*parameter.shape))
        return
    if "embed_tokens" in name:
        scale = 0.1
    elif "lm_head" in name:
        scale = 0.02
    elif "patch_embed" in name:
        scale = 0.5 / fan_in
    elif "deepstack" in name and "fc2" in name:
        scale = 0.1 / fan_in
    elif _writes_to_the_stream(name):
        scale = 0.3 / fan_in
    else:
        scale = 0.8 / fan_in
    nn.init.normal_(parameter, 0.0, scale)


def _writes_to_the_stream(name: str) -> bool:
    if "blocks" in name and "linear_fc2" in name:
        return True
    return name.endswith(("o_proj.weight", "down_proj.weight", "attn.proj.weight"))


def _smooth_positions(num_positions: int, width: int) -> Tensor:
    """Low-frequency waves of row and column, plus noise: neighbours start out alike."""
    side = math.isqrt(num_positions)
    frequencies = torch.arange(1, 1 + width // 8) * 0.25
    angles = math.pi * torch.linspace(0, 1, side)[:, None] * frequencies
    waves = torch.cat((angles.sin(), angles.cos()), dim=-1)  # [side, width / 4]
    rows = waves[:, None].expand(side, side, -1)
    columns = waves[None].expand(side, side, -1)
    grid = torch.cat((rows, columns), dim=-1).reshape(num_positions, -1)
    grid = grid.repeat(1, math.ceil(width / grid.shape[1]))[:, :width]
    return grid * 0.25 + torch.randn(num_positions, width) * 0.02


def export(learner: Learner, source: Path, target: Path) -> None:
    """Write bfloat16 weights beside the source's tokenizer, template and processor files."""
    target.mkdir(parents=True, exist_ok=True)
    weights = {
        name: tensor.detach().bfloat16().contiguous()
        for name, tensor in learner.model.state_dict().items()
    }
    learner.model.save_pretrained(target, state_dict=weights)
    for name in SIDE_FILES:
        if source != target:
            shutil.copyfile(source / name, target / name)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    step: int
    num_images: int
    num_answers: int
    seconds: float


def save_state(
    directory: Path, learner: Learner, optimisers: Optimisers, progress: Progress
) -> None:
    """Write everything needed to go on, in one rename so that a stop never leaves half a file."""
    state = {
        "learner": learner.state_dict(),
        "optimisers": optimisers.state(),
        "progress": json.dumps({name: getattr(progress, name) for name in Progress.__slots__}),
    }
    partial = directory / f"{STATE_FILE}.part"
    torch.save(state, partial)
    os.replace(partial, directory / STATE_FILE)


def restore_state(directory: Path, learner: Learner, optimisers: Optimisers) -> Progress:
    """Go on where the directory's state ended."""
    state = torch.load(directory / STATE_FILE, weights_only=True)
    learner.load_state_dict(state["learner"])
    optimisers.restore(state["optimisers"])
    return Progress(**json.loads(state["progress"]))
