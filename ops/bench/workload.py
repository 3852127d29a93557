"""What is sent: a named workload and a seed in, the message content of every request out."""

import base64
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from ops.bench.images import Camera, Size

WORDS = (
    *("anchor", "basket", "candle", "desert", "evening", "feather", "garage", "harbour"),
    *("island", "jacket", "kettle", "lantern", "meadow", "needle", "orchard", "pepper"),
)

Content = str | list[dict[str, Any]]  # the content of an OpenAI user message


@dataclass(frozen=True, slots=True)
class Workload:
    """One kind of load. Counts of requests are per round and target."""

    images: tuple[Size, ...]  # of each request, in this order
    concurrency: int  # closed loop: always in flight; fixed rate: most in flight
    max_tokens: int
    num_requests: int
    num_rounds: int
    num_warmup: int  # untimed requests to each target before the rounds
    num_image_sets: int | None = None  # None: every request has images of its own
    requests_per_second: float | None = None  # None: closed loop
    num_words: int = 16


SMALL = Size(640, 480)
LARGE = Size(1536, 1024)

WORKLOADS: Mapping[str, Workload] = MappingProxyType(
    {
        "W1": Workload((SMALL,), 1, 16, num_requests=8, num_rounds=6, num_warmup=3),
        "W2": Workload((SMALL,), 16, 16, num_requests=32, num_rounds=4, num_warmup=16),
        "W3": Workload((LARGE,) * 4, 4, 16, num_requests=8, num_rounds=3, num_warmup=2),
        "W4": Workload(
            (SMALL,), 8, 16, num_requests=32, num_rounds=4, num_warmup=8, num_image_sets=1
        ),
        "W5": Workload((), 16, 64, num_requests=32, num_rounds=4, num_warmup=16),
    }
)


def parse_images(text: str) -> tuple[Size, ...]:
    """`2x640x480,1x224x224` (count, width, height) or `none`; ValueError on anything else."""
    if text == "none":
        return ()
    sizes: list[Size] = []
    for part in text.split(","):
        count, width, height = (int(number) for number in part.split("x"))
        if min(count, width, height) < 1:
            raise ValueError(f"{part}: count, width and height start at 1")
        sizes += [Size(width, height)] * count
    return tuple(sizes)


def make_contents(workload: Workload, seed: int) -> list[Content]:
    """The content of every request of a run: the warm-up's first, then round after round."""
    num_contents = workload.num_warmup + workload.num_rounds * workload.num_requests
    image_parts = _image_parts(workload, seed)
    if workload.num_image_sets is not None:
        kept = [next(image_parts) for _ in range(workload.num_image_sets)]
        image_parts = (kept[number % len(kept)] for number in range(num_contents))
    words = random.Random(seed)
    return [
        _content(next(image_parts), _question(words, workload.num_words))
        for _ in range(num_contents)
    ]


def _image_parts(workload: Workload, seed: int) -> Iterator[list[dict[str, Any]]]:
    camera = Camera(seed)
    while True:
        yield [_image_part(camera.take(size)) for size in workload.images]


def _image_part(jpeg: bytes) -> dict[str, Any]:
    url = "data:image/jpeg;base64," + base64.b64encode(jpeg).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def _question(words: random.Random, num_words: int) -> str:
    # The number comes first, so that two questions share no prefix worth caching.
    text = " ".join(words.choice(WORDS) for _ in range(num_words))
    return f"{words.randrange(10**9)} Describe: {text}"


def _content(image_parts: list[dict[str, Any]], question: str) -> Content:
    if not image_parts:
        return question
    return [*image_parts, {"type": "text", "text": question}]
