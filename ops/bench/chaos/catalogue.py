"""The questions of a run: bodies to send, and pictures that look new without being so."""

import base64
import io
import json
import random
from dataclasses import dataclass
from typing import Any

from PIL import Image

from ops.bench.images import Camera, Size
from ops.bench.workload import WORDS

SIZES = (Size(64, 48), Size(200, 310), Size(500, 120), Size(640, 480), Size(900, 700))


@dataclass(frozen=True, slots=True)
class Question:
    """One request, whose answer is always the same; `pictures` are JPEG files."""

    name: str
    text: str
    pictures: tuple[bytes, ...]
    num_choices: int
    max_tokens: int

    def body(self, model: str, *, streamed: bool, nonce: int | None) -> bytes:
        """The request; with a nonce, its pictures are other files of the same pixels."""
        parts: list[dict[str, Any]] = [
            {"type": "image_url", "image_url": {"url": _uri(each, nonce)}} for each in self.pictures
        ]
        parts.append({"type": "text", "text": self.text})
        return json.dumps(
            {
                "model": model,
                "messages": [{"role": "user", "content": parts}],
                "stream": streamed,
                "n": self.num_choices,
                "max_tokens": self.max_tokens,
                "temperature": 1.0 if self.num_choices > 1 else 0.0,
                "seed": 7,
                "ignore_eos": True,
            }
        ).encode()


def make_questions(seed: int, count: int) -> list[Question]:
    """Text alone, one image, several; short and long answers; one choice and several."""
    chance, camera = random.Random(seed), Camera(seed)
    questions = []
    for number in range(count):
        num_pictures = chance.choice((0, 0, 1, 1, 1, 2, 3))
        words = " ".join(chance.choices(WORDS, k=chance.choice((3, 12, 80))))
        questions.append(
            Question(
                name=f"question {number}",
                text=f"{number} {words}?",
                pictures=tuple(camera.take(chance.choice(SIZES)) for _ in range(num_pictures)),
                num_choices=chance.choice((1, 1, 1, 1, 3)),
                max_tokens=chance.choice((1, 8, 24, 60)),
            )
        )
    return questions


def bad_body(model: str, chance: random.Random) -> bytes:
    """A request whose image is damaged, which is the caller's fault: 400."""
    image = Image.new("RGB", (chance.randrange(20, 90), 33), "white")
    file = io.BytesIO()
    image.save(file, "PNG")
    data = file.getvalue()[: chance.randrange(10, 60)]
    part = {"type": "image_url", "image_url": {"url": _data_uri(data, "png")}}
    messages = [{"role": "user", "content": [part]}]
    return json.dumps({"model": model, "messages": messages}).encode()


def _uri(jpeg: bytes, nonce: int | None) -> str:
    if nonce is not None:  # a comment behind the first marker
        comment = str(nonce).encode()
        length = (len(comment) + 2).to_bytes(2, "big")
        jpeg = jpeg[:2] + b"\xff\xfe" + length + comment + jpeg[2:]
    return _data_uri(jpeg, "jpeg")


def _data_uri(data: bytes, form: str) -> str:
    return f"data:image/{form};base64,{base64.b64encode(data).decode()}"
