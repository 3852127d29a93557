"""Only an image's owner receives, materialises and encodes it; results keep the images' order."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from config.settings import ImageSettings, ModelSettings, Settings, WorkerSettings
from config.workers import parse_workers
from gateway.encoding.embeddings import EmbeddingStore, Entry
from gateway.encoding.encode import Encoder
from gateway.encoding.flight import Picture, Pilot
from gateway.encoding.payload import PayloadRule
from gateway.encoding.place import ImageTask
from gateway.images.decode_pool import DecodePool
from gateway.images.fetch import SourceImage
from gateway.images.header import read_header
from gateway.images.identity import source_digest
from gateway.jobs.dispatch import Dispatcher
from gateway.observe.metrics import Metrics
from tests.checkpoints import make_checkpoint
from tests.pictures import encoded, noise
from tests.recording_worker import RECORDING_COMMAND, content_of, record_path
from tests.workers.vision.towers import expected_patches
from workers.families import Layout, load_layout
from workers.families.plan import ImagePlan
from workers.families.qwen_vl.load import load_models
from workers.messages import FromWorker
from workers.pool import Pool

WORKERS = "cpu:vision,cpu:vision,cpu:vision+language"
# Width and height; the third and the fifth have one grid, and the last is the first again.
SIZES = [(170, 60), (58, 230), (140, 112), (300, 85), (141, 111), (64, 64), (29, 400), (170, 60)]
SEEDS = [0, 1, 2, 3, 4, 5, 6, 0]
FORMATS = ["PNG", "JPEG", "JPEG", "PNG", "PNG", "JPEG", "PNG", "PNG"]


@dataclass(frozen=True)
class Record:
    """What one worker wrote down."""

    received: list[dict[str, Any]]
    viewed: list[dict[str, Any]]
    encoded: list[dict[str, Any]]


@dataclass
class Run:
    """What came of one request, and what each worker saw of it."""

    model: Path
    pictures: list[Picture]
    patches: list[Tensor]  # what each image is for the tower, by Pillow and plain loops
    entries: list[Entry]
    embeddings: list[Tensor]
    records: list[Record]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    model = make_checkpoint(tmp_path_factory.mktemp("owners"), "qwen2_5_vl")
    return asyncio.run(asyncio.wait_for(perform(model), 120))


async def perform(model: Path) -> Run:
    layout = load_layout(model)
    parameters = zip(SEEDS, SIZES, FORMATS, strict=True)
    files = [encoded(noise(seed, size), form) for seed, size, form in parameters]
    images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
    pictures = [await look(index, file, layout) for index, file in enumerate(files)]
    plans = [picture.task.plan for picture in pictures]
    async with running(model) as (pool, encoder):
        with ExitStack() as cleanup:
            entries, _ = await encoder.obtain(pictures, "request", cleanup)
            embeddings = [copy_of(pool, entry) for entry in entries]
    return Run(
        model=model,
        pictures=pictures,
        patches=[
            expected_patches(resized(image, plan), plan)
            for image, plan in zip(images, plans, strict=True)
        ],
        entries=entries,
        embeddings=embeddings,
        records=[read_record(model, f"worker-{index}") for index in range(3)],
    )


async def look(index: int, file: bytes, layout: Layout) -> Picture:
    source = SourceImage(index, f"messages[0].content[{index}]", file)
    header = read_header(source, ImageSettings())
    plan = layout.plan(header.displayed_size, "cuda")  # files and source pixels travel
    digest = await source_digest(source.data, plan, b"", bytes(32))
    return Picture(source, header, ImageTask(index, plan, digest))


@asynccontextmanager
async def running(model: Path) -> AsyncIterator[tuple[Pool, Encoder]]:
    """Three recording workers, and the gateway's own way of handing images to them."""
    settings = Settings(
        model=ModelSettings(model=model),
        workers=WorkerSettings(workers=WORKERS, arena_bytes=1 << 22, threads_per_worker=1),
    )
    metrics = Metrics()

    def on_event(worker: int, event: FromWorker) -> None:
        dispatcher.on_event(worker, event)

    pool = Pool(
        settings,
        parse_workers(WORKERS),
        on_event=on_event,
        on_lost=lambda _worker: None,
        command=RECORDING_COMMAND,
    )
    dispatcher = Dispatcher(pool, metrics)
    payloads = PayloadRule(load_layout(model).max_resized_pixels)
    store = EmbeddingStore(pool.places, 0.5, metrics)
    pilot = Pilot(dispatcher, DecodePool(1), payloads, metrics, 60.0)
    await pool.start()
    try:
        await pool.wait_ready()
        yield pool, Encoder(pool, store, pilot, metrics)
    finally:
        await pool.stop(2.0)


def copy_of(pool: Pool, entry: Entry) -> Tensor:
    data = bytearray(pool.arena(entry.owner).view(entry.tensor.region))
    values = torch.frombuffer(data, dtype=getattr(torch, entry.tensor.dtype))
    return values[: int(np.prod(entry.tensor.shape))].view(entry.tensor.shape)


def resized(image: Image.Image, plan: ImagePlan) -> Any:
    height, width = plan.resized_size
    return np.asarray(image.resize((width, height), Image.Resampling.BICUBIC))


def read_record(model: Path, worker: str) -> Record:
    lines = [json.loads(line) for line in record_path(model, worker).read_text().splitlines()]
    kinds = ([line for line in lines if line["what"] == what] for what in Record.__annotations__)
    return Record(*kinds)


def owned(run: Run, worker: int) -> Sequence[int]:
    """The distinct images of one owner, by their index in the prompt."""
    return [index for index, entry in enumerate(run.entries[:-1]) if entry.owner == worker]


@pytest.mark.slow
def test_the_images_are_shared_out(run: Run) -> None:
    assert sum(bool(owned(run, worker)) for worker in range(3)) >= 2
    assert {len(run.entries), len(SIZES)} == {8}


@pytest.mark.slow
@pytest.mark.parametrize("worker", range(3))
def test_only_the_owner_receives_an_image(run: Run, worker: int) -> None:
    received = [line["job"] for line in run.records[worker].received]

    assert sorted(received) == [f"request/{index}" for index in owned(run, worker)]


@pytest.mark.slow
@pytest.mark.parametrize("worker", range(3))
def test_only_the_owner_looks_at_an_image(run: Run, worker: int) -> None:
    """In an arena of its own: each payload once, and each target once."""
    viewed = [(line["arena"], line["offset"]) for line in run.records[worker].viewed]

    assert {arena for arena, _ in viewed} <= {worker}
    assert len(set(viewed)) == len(viewed) == 2 * len(owned(run, worker))


@pytest.mark.slow
@pytest.mark.parametrize("worker", range(3))
def test_only_the_owner_encodes_an_image(run: Run, worker: int) -> None:
    encoded = [(tuple(line["grid"]), line["content"]) for line in run.records[worker].encoded]
    expected = [
        (run.pictures[index].task.plan.grid, content_of(run.patches[index]))
        for index in owned(run, worker)
    ]

    assert sorted(encoded) == sorted(expected)


@pytest.mark.slow
def test_results_come_back_in_the_order_of_the_images(run: Run) -> None:
    models = load_models(run.model, ("vision",), "cpu", "float32", lambda _done, _total: None)
    assert models.vision is not None
    for picture, patches, found in zip(run.pictures, run.patches, run.embeddings, strict=True):
        (expected,) = models.vision.encode(patches, [picture.task.plan.grid])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    grids = [picture.task.plan.grid for picture in run.pictures]
    assert grids[2] == grids[4]  # a swap of these two could only be seen in the values
    assert run.entries[0] is run.entries[7]
