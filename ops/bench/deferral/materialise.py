"""Images one by one from their files to what the tower takes: time and bytes by payload.

A real arena with the gateway's end and an owner's end in this process, and one thread. Bits are
compared: whatever carried an image, the tower must see and give the same.
"""

import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from itertools import pairwise

import torch
from torch import Tensor

from config.settings import ImageSettings
from gateway.encoding.flight import Payloads, Picture
from gateway.encoding.place import ImageTask
from gateway.images.fetch import SourceImage
from gateway.images.header import read_header, set_up_pillow
from ops.bench.images import Camera, Size
from workers.arena import Arena, Arenas
from workers.families import Layout
from workers.messages import EncodeJob, Region
from workers.vision.encoder import Encoder
from workers.vision.materialise import Material, Materialiser
from workers.vision.payloads import JobFault

ARENA_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one set of images; CPU seconds of one thread, page faults included."""

    num_bytes: float  # to the owner
    make_seconds: float  # in the gateway: decode, and all else before sending
    copy_seconds: float  # into the arena
    prepare_seconds: float  # in the owner: until the tower can start, with the feature digest

    @property
    def gateway_seconds(self) -> float:
        """What does not shrink when there are more owners."""
        return self.make_seconds + self.copy_seconds

    @property
    def total_seconds(self) -> float:
        """From the files to the tower's input."""
        return self.gateway_seconds + self.prepare_seconds


class Route:
    """One way from a file to the tower. Owned by the measurement."""

    def __init__(self, payloads: Payloads, vision: Encoder) -> None:
        self._payloads = payloads
        self._vision = vision
        self._arena = Arena(0, ARENA_BYTES)
        arenas = Arenas([os.dup(self._arena.file_number)])
        self._materialiser = Materialiser(vision, arenas, bytes(32))

    def is_served(self, picture: Picture) -> bool:
        """Whether an owner on this device takes what this way sends."""
        try:
            self._walk(picture)
        except JobFault as fault:
            if fault.kind != "undecoded":
                raise
            return False
        return True

    def cost(self, pictures: Sequence[Picture]) -> Cost:
        """Bring every picture to the tower's door."""
        costs = [self._walk(picture)[0] for picture in pictures]
        return Cost(*(sum(parts) for parts in zip(*map(astuple, costs), strict=True)))

    def bits(self, pictures: Sequence[Picture]) -> list[tuple[bytes, bytes]]:
        """For each picture a hash of what the tower sees, and one of what it gives."""
        return [self._bits(picture) for picture in pictures]

    def _bits(self, picture: Picture) -> tuple[bytes, bytes]:
        _, features = self._walk(picture)
        (embeddings,) = self._vision.encode(features, [picture.task.plan.grid])
        return _hash(features), _hash(embeddings)

    def _walk(self, picture: Picture) -> tuple[Cost, Tensor]:
        """The features may lie in the arena, where they last until the next walk."""
        moments = [time.process_time()]
        data, payload_of = self._payloads.make(picture, decoded=False)
        moments.append(time.process_time())
        region = self._take(len(data))
        self._arena.view(region)[:] = data
        moments.append(time.process_time())
        job = EncodeJob(
            job_id="job",
            plan=picture.task.plan,
            payload=payload_of(region),
            target=region,
            seconds_left=60.0,
        )
        (material,) = self._materialiser.materialise([job])
        moments.append(time.process_time())
        self._arena.free(region)
        if not isinstance(material, Material):
            raise material
        steps = (later - earlier for earlier, later in pairwise(moments))
        return Cost(len(data), *steps), material.features

    def _take(self, num_bytes: int) -> Region:
        region = self._arena.allocate(num_bytes)
        assert region is not None, "the arena is too small for an image"
        return region


def take_pictures(layout: Layout, sizes: Sequence[Size], seed: int) -> list[Picture]:
    """JPEG files of these sizes, all different, with headers and plans."""
    camera, limits = Camera(seed), ImageSettings()
    set_up_pillow(limits)
    pictures: list[Picture] = []
    for index, size in enumerate(sizes):
        source = SourceImage(index, f"images[{index}]", camera.take(size))
        header = read_header(source, limits)
        task = ImageTask(index, layout.plan(header.displayed_size, "cpu"), index.to_bytes(16))
        pictures.append(Picture(source, header, task))
    return pictures


def compare(
    pictures: Sequence[Picture], routes: dict[str, Route], num_rounds: int
) -> dict[str, list[Cost]]:
    """Each way's cost, round by round; they take turns, after one walk to warm up.

    Raises:
        AssertionError: two ways give the tower, or make it give, different bits.
    """
    bits = [route.bits(pictures) for route in routes.values()]
    assert all(each == bits[0] for each in bits), "the ways differ in what the tower sees"
    rounds = [
        {name: route.cost(pictures) for name, route in routes.items()} for _ in range(num_rounds)
    ]
    return {name: [each[name] for each in rounds] for name in routes}


def median_cost(costs: Sequence[Cost]) -> Cost:
    """Part by part."""
    return Cost(*(statistics.median(parts) for parts in zip(*map(astuple, costs), strict=True)))


def _hash(features: Tensor) -> bytes:
    return blake2b(features.contiguous().view(torch.uint8).numpy().data, digest_size=16).digest()
