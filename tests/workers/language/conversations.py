"""Requests that begin alike, and engines that get their embeddings for a moment only."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.workers.language.models import LentArenas, Model, Request, make_job, make_request
from workers.language import sampler
from workers.language.drawing import Draw, draw
from workers.language.engine import Engine
from workers.messages import Failed, Finished, FromWorker, Started
from workers.sampling import Sampling

Logits = dict[tuple[int, int], Tensor]  # seed of the job, index of the token


def join(first: Request, answer: Sequence[int], second: Request) -> Request:
    """The next turn of a conversation."""
    before = [*first.token_ids, *answer]
    return Request(
        token_ids=before + second.token_ids,
        starts=first.starts + [len(before) + start for start in second.starts],
        grids=first.grids + second.grids,
        pixels=first.pixels + second.pixels,
        embeddings=first.embeddings + second.embeddings,
        max_tokens=second.max_tokens,
    )


def same_sizes(request: Request, seed: int) -> Request:
    """The same prompt with other images of the same sizes."""
    generator = torch.Generator().manual_seed(seed)
    others = [
        each[:, torch.randperm(each.shape[1], generator=generator)].neg()
        for each in request.embeddings
    ]
    return replace(request, embeddings=others)


def make_requests(model: Model, seed: int, count: int) -> list[Request]:
    """Conversations that go on, split up, come again, or show other images of the same sizes."""
    chance = random.Random(seed)
    found = [make_request(model, seed, 2)]
    for index in range(1, count):
        known = chance.choice(found)
        new = make_request(model, 1000 * seed + index, chance.choice([0, 0, 1, 2]))
        answer = [chance.randrange(700) for _ in range(chance.randint(0, 20))]
        choices = [new, known, same_sizes(known, index)]
        if known.num_tokens < 300:
            choices += [join(known, answer, new)] * 2
        found.append(chance.choice(choices))
    return found


def sampling(request: Request, seed: int) -> Sampling:
    """Every other job draws; the seed tells the job."""
    return Sampling(
        temperature=0.8 * (seed % 2),
        top_p=0.9,
        top_k=0,
        seed=seed,
        max_tokens=request.max_tokens,
        stop_token_ids=(),
    )


class Recorder:
    """Keeps the logits of every token that is chosen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._rows: Logits = {}
        monkeypatch.setattr(sampler, "draw", self._draw)

    def _draw(self, logits: Tensor, draws: list[Draw]) -> tuple[Tensor, Tensor]:
        for row, each in zip(logits, draws, strict=True):
            self._rows[each.sampling.seed, each.index] = row
        return draw(logits, draws)

    def take(self) -> Logits:
        """What came since the last look."""
        rows, self._rows = self._rows, {}
        return rows


def distance(found: Logits, expected: Logits) -> float:
    """Largest difference of a logit; every row that was found is expected."""
    assert found.keys() <= expected.keys()
    return max(float((found[key] - expected[key]).abs().max()) for key in found)


def put(engine: Engine, arenas: LentArenas, request: Request, seed: int = 0) -> None:
    """Put a job named by its seed, and overwrite its embeddings at once."""
    engine.put(make_job(arenas, request, str(seed), sampling(request, seed)))
    for region in arenas.regions:
        arenas.arena.view(region)[:] = b"\xff" * region.num_bytes
        arenas.arena.free(region)
    arenas.regions.clear()


def ask(
    engine: Engine,
    arenas: LentArenas,
    requests: list[Request],
    num_at_once: int = 1,
    aborted: frozenset[int] = frozenset(),
) -> list[FromWorker]:
    """Answer requests; those to be aborted go after some steps."""
    chance = random.Random(len(requests))
    events: list[FromWorker] = []
    waiting, running = list(enumerate(requests)), set[int]()
    while waiting or engine.busy:
        while waiting and len(running) < num_at_once:
            index, request = waiting.pop(0)
            put(engine, arenas, request, index)
            running.add(index)
        new = engine.step()
        engine.check()
        events += new
        running -= {int(each.job_id) for each in new if isinstance(each, Finished | Failed)}
        for index in sorted(running & aborted):
            if chance.random() < 0.3:
                engine.abort(str(index))
    return events


def cached(events: list[FromWorker]) -> dict[int, int]:
    """Prompt tokens that were not computed, by the seed of the job."""
    started = [event for event in events if isinstance(event, Started)]
    return {int(event.job_id): event.num_cached_tokens for event in started}
