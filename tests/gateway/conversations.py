"""Conversations as transformers takes them, and the `Prompt`s that mean the same."""

import random
from typing import Any

import numpy as np
from PIL import Image

from gateway.prompts.prompt import ImageRef, ImageSlot, Prompt, Turn
from gateway.prompts.tool_use import NO_TOOLS
from workers.sampling import Sampling

Message = dict[str, Any]

TEXTS = (
    "",
    " ",
    "What is this?",
    "Привет, как дела?",
    "日本語 and العربية, mixed",
    "🦊👩‍👩‍👧‍👦 e\u0301 \u00e9 \ufb01",
    "line one\n\n\tline two  \r\n",
    "  leading and trailing  ",
    "x < y | z > 0; <b>bold</b> &amp; {{ messages }} {% raw %}",
    "\ue000private\ue001 \u200b zero\u0000",
    "1234567890 " * 5,
)


def picture(height: int, width: int, seed: int) -> Image.Image:
    """An image of noise of its own."""
    noise = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(noise)


def random_conversation(seed: int) -> list[Message]:
    """A few turns with 0 to 4 images, no two of the same size."""
    chance = random.Random(seed)
    images = [
        picture(chance.randint(20, 90) * 3 + index, chance.randint(20, 90) * 3, seed + index)
        for index in range(seed % 5)
    ]
    messages: list[Message] = []
    if chance.random() < 0.5:
        messages.append({"role": "system", "content": chance.choice(TEXTS)})
    for turn in range(chance.randint(1, 3)):
        if turn:
            messages.append({"role": "assistant", "content": chance.choice(TEXTS)})
        messages.append({"role": "user", "content": chance.choice(TEXTS)})
    users = [message for message in messages if message["role"] == "user"]
    for message in users if images else []:
        message["content"] = [{"type": "text", "text": message["content"]}]
    for image in images:
        parts = chance.choice(users)["content"]
        parts.insert(chance.randint(0, len(parts)), {"type": "image", "image": image})
        parts.append({"type": "text", "text": chance.choice(TEXTS)})
    return messages


def images_of(messages: list[Message]) -> list[Image.Image]:
    """The images of a conversation, in its order."""
    return [
        part["image"]
        for message in messages
        if isinstance(message["content"], list)
        for part in message["content"]
        if part["type"] == "image"
    ]


def prompt_of(messages: list[Message], max_tokens: int = 16) -> Prompt:
    """The same conversation as a `Prompt`."""
    images: list[ImageRef] = []
    turns = []
    for message in messages:
        content = message["content"]
        if isinstance(content, str):
            turns.append(Turn(message["role"], (content,), plain=True))
            continue
        parts: list[str | ImageSlot] = []
        for part in content:
            if part["type"] == "image":
                parts.append(ImageSlot(len(images)))
                images.append(ImageRef(len(images), "messages", b""))
            else:
                parts.append(part["text"])
        turns.append(Turn(message["role"], tuple(parts), plain=False))
    sampling = Sampling(
        temperature=0, top_p=1, top_k=0, seed=1, max_tokens=max_tokens, stop_token_ids=(762,)
    )
    return Prompt(
        request_id="request",
        tenant=b"",
        model="model",
        turns=tuple(turns),
        images=tuple(images),
        tool_use=NO_TOOLS,
        num_choices=1,
        sampling=sampling,
        grammar=None,
        stop=(),
        streamed=False,
        include_usage=False,
        deadline=0.0,
    )
