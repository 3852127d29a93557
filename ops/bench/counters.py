"""What a server counts itself: its /metrics before and after in, how far each counter grew out.

A hit counter that grows under a load of new images shows that the images were not new.
"""

import re
from collections.abc import Mapping

import httpx

from ops.bench.client import Target

SAMPLE = re.compile(
    r"^(?P<name>[a-zA-Z_:][\w:]*_total)(?:\{.*\})?\s+(?P<value>[^\s]+)", re.MULTILINE
)
ABOUT_IMAGES = re.compile(r"cache|encod|image")


async def read_counters(client: httpx.AsyncClient, target: Target) -> dict[str, float]:
    """The sums over all labels of counters about images and caches; empty without /metrics."""
    url = target.base_url.removesuffix("/v1") + "/metrics"
    try:
        response = await client.get(url)
    except httpx.HTTPError:
        return {}
    return parse_counters(response.text) if response.status_code == httpx.codes.OK else {}


def parse_counters(text: str) -> dict[str, float]:
    """Counters about images and caches in Prometheus' text format, summed over their labels."""
    counters: dict[str, float] = {}
    for sample in SAMPLE.finditer(text):
        name = sample["name"]
        if ABOUT_IMAGES.search(name):
            counters[name] = counters.get(name, 0.0) + float(sample["value"])
    return counters


def growth(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """How far each counter grew; one that appeared meanwhile started at 0."""
    return {name: value - before.get(name, 0.0) for name, value in sorted(after.items())}
