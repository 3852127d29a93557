"""Encode jobs over a real arena, and what transformers says they should give."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor

from workers.arena import Arena, Arenas
from workers.families.qwen_vl.layout import QwenLayout
from workers.families.qwen_vl.vision import VisionModel
from workers.messages import Encoded, EncodeJob, FromWorker, Pixels, Region

SIZES = [(64, 96), (150, 90), (33, 210), (120, 121), (75, 76)]


class Memory:
    """One link's arena, seen from both of its ends."""

    def __init__(self) -> None:
        self.gateway = Arena(0, 1 << 22)
        self.worker = Arenas([os.dup(self.gateway.file_number)])

    def allocate(self, num_bytes: int) -> Region:
        region = self.gateway.allocate(num_bytes)
        assert region is not None
        return region

    def store(self, data: bytes) -> Region:
        region = self.allocate(len(data))
        self.gateway.view(region)[:] = data
        return region


@dataclass
class Bench:
    """A layout, a tower, what is needed to make jobs for them, and what they should give."""

    layout: QwenLayout
    vision: VisionModel
    expected: list[Tensor]  # per picture: [levels, tokens, hidden], by transformers, alone
    memory: Memory
    looks_ahead: bool  # how the owner is to prepare

    def job(self, name: str, image: Image.Image, seconds_left: float = 60.0) -> EncodeJob:
        plan = self.layout.plan((image.height, image.width), "cpu")
        height, width = plan.resized_size
        raw = image.resize((width, height), Image.Resampling.BICUBIC).tobytes()
        region = self.memory.store(raw)
        target = self.memory.allocate(plan.num_tokens * self.vision.embedding_bytes_per_token)
        return EncodeJob(
            job_id=name,
            plan=plan,
            payload=Pixels(region, height, width, 3, "resized"),
            target=target,
            seconds_left=seconds_left,
        )

    def result(self, job: EncodeJob, event: FromWorker) -> Tensor:
        assert isinstance(event, Encoded)
        assert event.dtype == "float32"
        view = self.memory.gateway.view(job.target)
        return torch.frombuffer(view, dtype=torch.float32).view(event.shape)


def pictures() -> list[Image.Image]:
    random = np.random.default_rng(11)
    return [
        Image.fromarray(random.integers(0, 256, (height, width, 3), dtype=np.uint8))
        for height, width in SIZES
    ]


def references(path: Path) -> list[Tensor]:
    """Each picture alone through transformers: [levels, tokens, hidden]."""
    processor = transformers.Qwen2VLImageProcessorPil.from_pretrained(path)
    model = transformers.AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    results = []
    for picture in pictures():
        inputs = processor(picture, return_tensors="pt")
        with torch.no_grad():
            output = model.get_image_features(**inputs, return_dict=True)
        deepstack = [level[0] for level in getattr(output, "deepstack_features", ())]
        results.append(torch.stack([output.pooler_output[0], *deepstack]))
    return results
