"""Jobs that cannot run are refused alone, and say whose mistake it is."""

from collections.abc import Callable

import msgspec
import pytest

from tests.workers.language.engines import (
    drain,
    last_events,
    make_engine,
    run,
    text_request,
)
from tests.workers.language.models import (
    LentArenas,
    Model,
    make_job,
    make_request,
)
from workers.messages import (
    Failed,
    Finished,
    GenerateJob,
    Region,
    Taken,
)


def break_span(job: GenerateJob, **changes: object) -> GenerateJob:
    first = msgspec.structs.replace(job.spans[0], **changes)
    return msgspec.structs.replace(job, spans=(first, *job.spans[1:]))


def break_reference(job: GenerateJob, **changes: object) -> GenerateJob:
    reference = job.spans[0].embeddings
    assert reference is not None
    return break_span(job, embeddings=msgspec.structs.replace(reference, **changes))


BROKEN: dict[str, Callable[[GenerateJob], GenerateJob]] = {
    "too many tokens": lambda job: break_span(job, num_tokens=job.spans[0].num_tokens + 1),
    "outside": lambda job: break_span(job, start=len(job.token_ids) // 4),
    "overlap": lambda job: break_span(job, start=job.spans[1].start),
    "before": lambda job: break_span(job, start=-1),
    "other grid": lambda job: break_span(job, grid=(1, 200, 200)),
    "region": lambda job: break_reference(job, region=Region(arena=9, offset=0, num_bytes=8)),
    "shape": lambda job: break_reference(job, shape=(1, 2, 3)),
    "dtype": lambda job: break_reference(job, dtype="int32"),
    "no dtype": lambda job: break_reference(job, dtype="nn"),
    "size": lambda job: break_reference(job, dtype="float64"),
    "ids": lambda job: msgspec.structs.replace(job, token_ids=b"\xff\xff\xff\x7f" * 300),
    "half an id": lambda job: msgspec.structs.replace(job, token_ids=job.token_ids[:-1]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_jobs_that_contradict_themselves_fail_alone(
    deep_model: Model, arenas: LentArenas, name: str
) -> None:
    request = make_request(deep_model, 14, 2)
    engine = make_engine(deep_model, arenas)
    engine.put(make_job(arenas, request, "good"))
    engine.put(BROKEN[name](make_job(arenas, request, "bad")))
    events = drain(engine)
    bad = last_events(events)["bad"]
    assert isinstance(bad, Failed)
    assert bad.kind == "internal"
    assert isinstance(last_events(events)["good"], Finished)
    assert [event.job_id for event in events if isinstance(event, Taken)] == ["good"]


def test_empty_prompt_is_bad_input(deep_model: Model, arenas: LentArenas) -> None:
    engine = make_engine(deep_model, arenas)
    ends = last_events(run(engine, [make_job(arenas, text_request(0, 5), "a")], 1))
    assert isinstance(ends["a"], Failed)
    assert ends["a"].kind == "bad_input"
