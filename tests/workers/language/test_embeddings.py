"""Embeddings are read where they lie, or copied once; what is gone fails its job alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import msgspec
import pytest
import torch

from tests.shared_pools import NoOpen, SharedPools
from tests.workers.language.engines import answers, drain, last_events, make_engine_at
from tests.workers.language.models import (
    LentArenas,
    Model,
    Request,
    generate,
    make_job,
    make_request,
)
from workers.features import ELSEWHERE, Home, OwnPool, make_pool
from workers.language.embeddings import EmbeddingReader, EmbeddingsLost
from workers.language.inputs import StepTensors
from workers.language.prompts import Prompt
from workers.language.scheduler import Step
from workers.messages import Failed, FromWorker, GenerateJob, MapPool, Region, Taken, TensorRef
from workers.ranges import BadRegion

AT_HOME = Home(index=0, pool=None, pools=None)  # the worker of the only arena


@dataclass(frozen=True)
class Lender:
    """An owner with a pool, of which the test is the gateway."""

    pool: OwnPool

    @property
    def message(self) -> MapPool:
        return MapPool(worker=3, pool=self.pool.describe())

    def move(self, arenas: LentArenas, reference: TensorRef, offset: int) -> TensorRef:
        """The same embeddings in the pool."""
        size = reference.region.num_bytes
        region = Region(3, offset, size, self.pool.number)
        content = torch.frombuffer(arenas.view(reference.region), dtype=torch.uint8)
        self.pool.view(region).copy_(content)
        return msgspec.structs.replace(reference, region=region)

    def job(self, arenas: LentArenas, request: Request, name: str) -> GenerateJob:
        """A job whose embeddings lie in the pool, one behind the other."""
        job, offset, spans = make_job(arenas, request, name), 64, []
        for span in job.spans:
            assert span.embeddings is not None
            moved = self.move(arenas, span.embeddings, offset)
            spans.append(msgspec.structs.replace(span, embeddings=moved))
            offset += -(-moved.region.num_bytes // 64) * 64
        return msgspec.structs.replace(job, spans=tuple(spans))


@pytest.fixture
def lender() -> Lender:
    return Lender(make_pool(SharedPools(), 1 << 20, is_shared=True))


def mapper() -> Home:
    """Another process, as far as an engine can tell."""
    return Home(index=1, pool=None, pools=SharedPools())


def taken(events: list[FromWorker]) -> dict[str, bool]:
    return {event.job_id: event.is_copied for event in events if isinstance(event, Taken)}


def read(
    model: Model, arenas: LentArenas, home: Home, tensor: torch.Tensor
) -> tuple[torch.Tensor, bool, TensorRef]:
    reference = arenas.store(tensor)
    found = EmbeddingReader(model.decoder, arenas, home).read(reference, tensor.dtype)
    return found.embeddings, found.is_copied, reference


def test_what_lies_in_the_own_arena_is_not_copied(deep_model: Model, arenas: LentArenas) -> None:
    tensor = torch.randn(2, 3, 4)
    seen, is_copied, reference = read(deep_model, arenas, AT_HOME, tensor)
    assert not is_copied
    assert torch.equal(seen, tensor)
    arenas.view(reference.region)[:] = bytes(reference.region.num_bytes)
    assert not seen.any()


def test_what_lies_in_anothers_arena_is_copied(deep_model: Model, arenas: LentArenas) -> None:
    tensor = torch.randn(2, 3, 4)
    seen, is_copied, reference = read(deep_model, arenas, ELSEWHERE, tensor)
    assert is_copied
    arenas.view(reference.region)[:] = bytes(reference.region.num_bytes)
    assert torch.equal(seen, tensor)


def test_what_has_another_type_is_copied(deep_model: Model, arenas: LentArenas) -> None:
    tensor = torch.randn(2, 3, 4).bfloat16()
    seen, is_copied, _ = read(deep_model, arenas, AT_HOME, tensor)
    assert is_copied
    assert torch.equal(seen, tensor.float())


@pytest.mark.parametrize("kind", ["own arena", "own pool", "mapped pool"])
def test_answers_are_the_same_from_wherever_embeddings_lie(
    deep_model: Model, arenas: LentArenas, lender: Lender, kind: str
) -> None:
    request = make_request(deep_model, 12, 3)
    if kind == "own arena":
        engine = make_engine_at(AT_HOME, deep_model, arenas)
        job = make_job(arenas, request, "a")
    else:
        pools = SharedPools()
        own = Home(index=3, pool=lender.pool, pools=pools)
        engine = make_engine_at(own if kind == "own pool" else mapper(), deep_model, arenas)
        assert kind == "own pool" or engine.map_pool(lender.message).failure == ""
        job = lender.job(arenas, request, "a")
    engine.put(job)
    if kind == "mapped pool":
        lender.pool.content.fill_(255)  # its region may be used again
    events = drain(engine)
    assert taken(events) == {"a": kind == "mapped pool"}
    assert answers(events)["a"] == generate(deep_model, request)


def test_a_prompt_that_is_computed_twice_reads_its_images_in_place_again(
    deep_model: Model, arenas: LentArenas, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = [replace(make_request(deep_model, seed, 2), max_tokens=24) for seed in (5, 6)]
    room = sum(-(-request.num_tokens // 4) * 4 for request in requests) + 16
    engine = make_engine_at(
        AT_HOME, deep_model, arenas, kv_block_tokens=4, kv_cache_tokens=room, prefix_cache=False
    )
    begun: list[str] = []  # jobs whose first token was computed, again after preemption
    build = engine._builder.build

    def note(step: Step, prompts: Mapping[str, Prompt]) -> StepTensors:
        begun.extend(piece.sequence.job_id for piece in step.slices if piece.start == 0)
        return build(step, prompts)

    monkeypatch.setattr(engine._builder, "build", note)
    for name, request in zip("ab", requests, strict=True):
        engine.put(make_job(arenas, request, name))
    events = drain(engine)
    assert len(begun) > len(set(begun)) == 2
    assert taken(events) == {"a": False, "b": False}
    found = answers(events)
    assert found == {
        name: generate(deep_model, request) for name, request in zip("ab", requests, strict=True)
    }


def test_embeddings_of_an_owner_that_is_gone_fail_their_job_alone(
    deep_model: Model, arenas: LentArenas, lender: Lender
) -> None:
    request = make_request(deep_model, 13, 2)
    engine = make_engine_at(mapper(), deep_model, arenas)
    engine.map_pool(lender.message)
    engine.drop_pool(lender.pool.number)
    engine.drop_pool(lender.pool.number)  # twice does nothing
    engine.put(lender.job(arenas, request, "late"))
    engine.put(make_job(arenas, request, "good"))
    events = drain(engine)
    end = last_events(events)["late"]
    assert isinstance(end, Failed)
    assert (end.kind, "worker-3 is gone" in end.message) == ("gone", True)
    assert taken(events) == {"good": True}


def test_the_next_pool_of_an_owner_is_not_taken_for_the_last(
    deep_model: Model, arenas: LentArenas, lender: Lender
) -> None:
    reader = EmbeddingReader(deep_model.decoder, arenas, mapper())
    tensor = torch.randn(1, 5, 7)
    old = lender.move(arenas, arenas.store(tensor), 640)
    reader.map(lender.message)
    assert torch.equal(reader.read(old, torch.float32).embeddings, tensor)
    reader.drop(lender.pool.number)
    following = Lender(make_pool(SharedPools(), 1 << 20, is_shared=True))
    reader.map(following.message)
    with pytest.raises(EmbeddingsLost):
        reader.read(old, torch.float32)
    new = following.move(arenas, arenas.store(-tensor), 640)
    assert torch.equal(reader.read(new, torch.float32).embeddings, -tensor)


@pytest.mark.parametrize(("offset", "num_bytes"), [((1 << 20) - 64, 128), (-64, 128)])
def test_a_region_outside_its_pool_is_refused(
    deep_model: Model, arenas: LentArenas, lender: Lender, offset: int, num_bytes: int
) -> None:
    region = Region(3, offset, num_bytes, lender.pool.number)
    reference = TensorRef(region, "float32", (1, 4, 8))
    for home in (mapper(), Home(index=3, pool=lender.pool, pools=None)):
        reader = EmbeddingReader(deep_model.decoder, arenas, home)
        reader.map(lender.message)
        with pytest.raises(BadRegion):
            reader.read(reference, torch.float32)


@pytest.mark.parametrize(
    ("home", "reason"),
    [
        (Home(index=1, pool=None, pools=NoOpen()), "the driver does not map memory here"),
        (Home(index=1, pool=None, pools=None), "this engine's device has no pools"),
    ],
)
def test_a_pool_that_cannot_be_mapped_is_told_and_not_raised(
    deep_model: Model, arenas: LentArenas, lender: Lender, home: Home, reason: str
) -> None:
    answer = make_engine_at(home, deep_model, arenas).map_pool(lender.message)
    assert answer.number == lender.pool.number
    assert answer.failure == f"cannot map the embeddings of worker-3: {reason}"


def test_a_handle_is_of_no_use_once_its_owner_is_gone(
    deep_model: Model, arenas: LentArenas, lender: Lender
) -> None:
    message = msgspec.structs.replace(
        lender.message,
        pool=msgspec.structs.replace(lender.message.pool, handle=b"/proc/4194304/fd/3"),
    )
    answer = make_engine_at(mapper(), deep_model, arenas).map_pool(message)
    assert "No such file" in answer.failure
