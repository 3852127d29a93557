"""A stream that is decoding is not held up by images for longer than one vision batch takes.

`pytest -s --log-cli-level=info` tells the figures.
"""

import itertools
import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import pytest

from config.settings import DEMO_MODEL
from tests.journeys.server import Server, running
from tests.pictures import image_part, noise, text_part

pytestmark = pytest.mark.slow

NUM_IMAGES = 8
MAX_PIXELS = 512 * 768
BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # some of the metric's, in seconds
SIZES = [(1536 - 8 * number, 1024) for number in range(NUM_IMAGES)]

logger = logging.getLogger(__name__)


@dataclass
class Stream:
    """An answer that goes on until it is told to stop. Written by its thread."""

    server: Server
    arrivals: list[float] = field(default_factory=list)  # monotonic seconds of its frames
    is_running: threading.Event = field(default_factory=threading.Event)
    shall_end: threading.Event = field(default_factory=threading.Event)

    def read(self) -> None:
        body = {
            "model": self.server.model,
            "messages": [{"role": "user", "content": "Say something."}],
            "stream": True,
            "max_tokens": 1900,
            "ignore_eos": True,
        }
        url = f"{self.server.url}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=60) as response:
            for line in response.iter_lines():
                if line.startswith("data: {"):
                    self.arrivals.append(time.monotonic())
                    self.is_running.set()
                if self.shall_end.is_set():
                    return

    def longest_gap(self, begun_at: float, ended_at: float) -> float:
        """Seconds between two frames, in a stretch of time."""
        inside = [at for at in self.arrivals if begun_at <= at <= ended_at]
        return max(after - before for before, after in itertools.pairwise(inside))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """One worker with both roles, and batches of one image, which takes a while to encode."""
    model = tmp_path / "thorough"
    shutil.copytree(DEMO_MODEL, model)
    path = model / "preprocessor_config.json"
    limits = {
        "max_pixels": MAX_PIXELS,
        "size": {"shortest_edge": 16384, "longest_edge": MAX_PIXELS},
    }
    path.write_text(json.dumps(json.loads(path.read_text()) | limits))
    with running(model=model, workers="cpu:vision+language", max_vision_batch_patches=1) as server:
        yield server


def send_image(server: Server, number: int) -> None:
    content = [image_part(noise(number, SIZES[number])), text_part("Describe the image.")]
    messages = [{"role": "user", "content": content}]
    body = {"model": server.model, "messages": messages, "max_tokens": 1}
    assert server.post(body).status_code == 200


def longest_batch(server: Server) -> float:
    """No batch took longer than so many seconds; as exact as the histogram."""
    for limit in BUCKETS:
        num_within = server.metric("fovea_stage_seconds_bucket", stage="encode", le=str(limit))
        if num_within == NUM_IMAGES:
            return limit
    return float("inf")


def test_no_gap_is_longer_than_a_batch(server: Server) -> None:
    stream = Stream(server)
    reader = threading.Thread(target=stream.read)
    reader.start()
    assert stream.is_running.wait(30)
    begun_at = time.monotonic()
    with ThreadPoolExecutor(NUM_IMAGES) as threads:
        list(threads.map(partial(send_image, server), range(NUM_IMAGES)))
    ended_at = time.monotonic()
    stream.shall_end.set()
    reader.join()

    assert server.metric("fovea_stage_seconds_count", stage="encode") == NUM_IMAGES
    total_seconds = server.metric("fovea_stage_seconds_sum", stage="encode")
    gap_seconds = stream.longest_gap(begun_at, ended_at)
    mean_seconds = total_seconds / NUM_IMAGES
    logger.info(
        "longest gap %.3f s; a batch takes %.3f s, the longest below %.3f s, all %d take %.3f s",
        *(gap_seconds, mean_seconds, longest_batch(server), NUM_IMAGES, total_seconds),
    )
    # Batches differ, and a busy machine adds its own; all in one would be NUM_IMAGES times as long.
    assert gap_seconds < total_seconds / 2
