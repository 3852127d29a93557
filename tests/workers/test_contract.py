"""What the gateway plans and sends, the owner takes: every family, every payload, every field."""

import importlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from tests.checkpoints import make_checkpoint
from tests.pictures import encoded, noise
from tests.plans import make_plan
from tests.workers.vision.jobs import Memory
from tests.workers.vision.towers import (
    Picture,
    embeddings_payload,
    expected_patches,
    jpeg_payload,
    make_job,
    patches_payload,
    pixels_payload,
    result_of,
    source_payload,
)
from workers.families import FAMILIES, Layout, load_layout
from workers.families.plan import Background, ImagePlan
from workers.messages import Encoded, EncodeJob, FromWorker, Payload, ToWorker
from workers.vision.encoder import Encoder
from workers.vision.owner import Owner
from workers.wire import Splitter, pack

KEY = bytes(range(32))
PAYLOADS = ("JpegBytes", "Pixels source", "Pixels RGBA", "Pixels resized", "Patches", "Embeddings")


@dataclass
class Family:
    """One checkpoint's two halves: what plans and what encodes."""

    layout: Layout
    vision: Encoder


@pytest.fixture(scope="module", params=sorted(FAMILIES))
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Family:
    path = make_checkpoint(tmp_path_factory.mktemp("contract"), request.param)
    load = importlib.import_module(f"workers.families.{FAMILIES[request.param]}.load")
    models = load.load_models(path, ("vision",), "cpu", "float32", lambda _done, _total: None)
    return Family(load_layout(path), models.vision)


@pytest.fixture
def memory() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.gateway.close()


def over_the_wire(message: EncodeJob | Encoded, union: Any) -> Any:
    """What the other end makes of a message."""
    (body,) = Splitter().feed(pack(message))
    return msgspec.msgpack.decode(body, type=union)


def encode(family: Family, memory: Memory, jobs: list[EncodeJob]) -> list[Encoded]:
    owner = Owner(family.vision, memory.worker, 1 << 20, KEY, looks_ahead=False)
    for job in jobs:
        owner.put(over_the_wire(job, ToWorker))
    events = [over_the_wire(event, FromWorker) for event in owner.step()]  # type: ignore[arg-type]
    assert [event.job_id for event in events] == [job.job_id for job in jobs]
    return events


def produce(memory: Memory, name: str, family: Family, plan: ImagePlan) -> Payload:
    if name == "JpegBytes":
        return jpeg_payload(memory, jpeg(plan.source_size))
    source = displayed(plan.source_size)
    if name == "Pixels source":
        return source_payload(memory, np.array(source))
    if name == "Pixels RGBA":
        return source_payload(memory, np.array(source.convert("RGBA")))
    picture = resized(source, plan)
    if name == "Pixels resized":
        return pixels_payload(memory, picture)
    patches = expected_patches(picture, plan)
    if name == "Patches":
        return patches_payload(memory, patches)
    assert name == "Embeddings"
    (embeddings,) = family.vision.encode(patches, [plan.grid])
    return embeddings_payload(memory, embeddings)


def jpeg(size: tuple[int, int]) -> bytes:
    """A picture that its size tells from all others."""
    height, width = size
    return encoded(noise(height, (width, height)), "JPEG")


def displayed(size: tuple[int, int]) -> Image.Image:
    return Image.open(io.BytesIO(jpeg(size))).convert("RGB")


def resized(source: Image.Image, plan: ImagePlan) -> Picture:
    height, width = plan.resized_size
    return np.array(source.resize((width, height), Image.Resampling.BICUBIC))


def truth(family: Family, plan: ImagePlan) -> Tensor:
    """The tower's own answer to patches that were made without any of our code."""
    patches = expected_patches(resized(displayed(plan.source_size), plan), plan)
    (embeddings,) = family.vision.encode(patches, [plan.grid])
    return embeddings


@pytest.mark.parametrize("size", [(75, 100), (212, 60)])
def test_every_payload_of_every_family_arrives(
    family: Family, memory: Memory, size: tuple[int, int]
) -> None:
    plan = family.layout.plan(size, "cpu")
    expected = truth(family, plan)
    jobs = [
        make_job(memory, name, plan, produce(memory, name, family, plan), expected.nbytes)
        for name in PAYLOADS
    ]

    events = encode(family, memory, jobs)

    for job, event in zip(jobs, events, strict=True):
        assert isinstance(event, Encoded)
        found = result_of(memory, job, event.shape, event.dtype)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
    # Equal pixels share the key of the prefix cache, however they came; tensors have their own.
    digests = [event.feature_digest for event in events]
    assert len(set(digests[:4])) == 1
    assert len(set(digests[3:])) == 3


PLAN = make_plan((56, 84), grid=(1, 4, 6), num_tokens=6)
STRUCTS = [PLAN, PLAN.background]
FIELDS = [
    (struct, field)
    for struct in STRUCTS
    for field in struct.__struct_fields__  # type: ignore[union-attr]
]


@pytest.mark.parametrize(("struct", "field"), FIELDS)
def test_a_plan_without_one_of_its_fields_is_neither_made_nor_read(
    struct: ImagePlan | Background, field: str
) -> None:
    fields = {name: getattr(struct, name) for name in struct.__struct_fields__ if name != field}

    with pytest.raises(TypeError, match=field):
        type(struct)(**fields)
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=type(struct))


@pytest.mark.parametrize("struct", STRUCTS)
def test_a_plan_with_a_field_that_nobody_knows_is_neither_made_nor_read(
    struct: ImagePlan | Background,
) -> None:
    fields = msgspec.structs.asdict(struct) | {"sharpness": 1}

    with pytest.raises(TypeError, match="sharpness"):
        type(struct)(**fields)
    with pytest.raises(msgspec.ValidationError, match="sharpness"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=type(struct))


@pytest.mark.parametrize("field", PLAN.__struct_fields__)
def test_a_plan_with_a_field_of_a_wrong_type_is_not_read(field: str) -> None:
    fields = msgspec.to_builtins(PLAN) | {field: {"wrong": "type"}}

    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=ImagePlan)
