"""Pictures for tests: drawn ones that the demo model knows, and noise that tells any two apart."""

import base64
import io
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

COLOURS = {
    "red": (220, 30, 35),
    "green": (30, 150, 55),
    "blue": (35, 75, 220),
    "yellow": (245, 222, 35),
    "orange": (250, 140, 20),
    "purple": (135, 40, 175),
    "black": (18, 18, 18),
}


def draw_shape(colour: str, shape: str, size: tuple[int, int] = (160, 128)) -> Image.Image:
    """One shape in the middle of a white picture of `size` (width, height)."""
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    x, y, radius = size[0] / 2, size[1] / 2, min(size) * 0.27
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        draw.ellipse(box, fill=COLOURS[colour])
    elif shape == "square":
        draw.rectangle(box, fill=COLOURS[colour])
    else:
        assert shape == "triangle"
        corners = [(x, y - radius), (x - radius, y + radius * 0.7), (x + radius, y + radius * 0.7)]
        draw.polygon(corners, fill=COLOURS[colour])
    return image


def noise(seed: int, size: tuple[int, int]) -> Image.Image:
    """A random RGB picture of `size` (width, height): coarse blocks, so that resizing keeps it."""
    random = np.random.default_rng(seed)
    blocks = random.integers(0, 256, (5, 7, 3), dtype=np.uint8)
    return Image.fromarray(blocks).resize(size, Image.Resampling.BILINEAR)


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def data_uri(image: Image.Image, form: str = "PNG", **options: Any) -> str:
    """The picture as a data URI."""
    text = base64.b64encode(encoded(image, form, **options)).decode()
    return f"data:image/{form.lower()};base64,{text}"


def image_part(image: Image.Image, form: str = "PNG") -> dict[str, Any]:
    """The picture as a content part of a message."""
    return {"type": "image_url", "image_url": {"url": data_uri(image, form)}}


def text_part(text: str) -> dict[str, Any]:
    """Text as a content part of a message."""
    return {"type": "text", "text": text}


def ask(model: str, *parts: dict[str, Any] | str, **fields: Any) -> dict[str, Any]:
    """The body of a chat request of one message."""
    content = [text_part(part) if isinstance(part, str) else part for part in parts]
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}
