"""Logits of packed forward passes, and the library's, row by row, after answers that are forced."""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tests.workers.language.models import (
    NUM_PLAIN_IDS,
    LentArenas,
    Model,
    Request,
    inputs_for_library,
    make_job,
    positions_for_library,
)
from workers.features import ELSEWHERE
from workers.language.blocks import BlockPool
from workers.language.embeddings import EmbeddingReader
from workers.language.graphs import Recorder
from workers.language.inputs import InputBuilder
from workers.language.paths import choose_path
from workers.language.prompts import Prompt, PromptReader
from workers.language.runner import Runner
from workers.language.scheduler import Scheduler
from workers.language.sequence import Sequence

NUM_LATER_TOKENS = 12
TOLERANCE = 3e-5  # of logits between 1 and 20
Rows = dict[tuple[int, int], Tensor]  # request, index of the token -> logits after it


def later_tokens(request: Request) -> list[int]:
    """An answer to force on both sides."""
    chance = random.Random(len(request.token_ids))
    return [chance.randrange(NUM_PLAIN_IDS) for _ in range(NUM_LATER_TOKENS)]


def packed(
    model: Model,
    requests: list[Request],
    num_blocks: int = 800,
    max_step_tokens: int = 2048,
    change: Callable[[Prompt], Prompt] = lambda prompt: prompt,
    recorder: Recorder | None = None,
) -> tuple[Rows, int]:
    """Logits of every row that chooses a token, and the steps that preempted sequences sat out."""
    arenas = LentArenas()
    embeddings = EmbeddingReader(model.decoder, arenas, ELSEWHERE)
    reader = PromptReader(model.decoder, model.layout, embeddings, 4096)
    runner = Runner(model.decoder, num_blocks, 2, recorder)
    attend = choose_path("auto", model.decoder)
    builder = InputBuilder(model.decoder, runner.cache, attend, pads=recorder is not None)
    scheduler = Scheduler(BlockPool(num_blocks, 2), max_step_tokens, 16)
    prompts: dict[str, Prompt] = {}
    for index, request in enumerate(requests):
        job = make_job(arenas, request, str(index))
        prompts[str(index)] = change(
            replace(reader.read(job), pictures=reader.read_pictures(job.spans).pictures)
        )
        sequence = Sequence(
            job_id=str(index),
            token_ids=list(request.token_ids),
            num_prompt_tokens=request.num_tokens,
            sampling=job.sampling,
            max_tokens=request.num_tokens + NUM_LATER_TOKENS,
            deadline=1e9,
        )
        scheduler.add(sequence)
    return _run(runner, builder, scheduler, prompts, requests)


def _run(
    runner: Runner,
    builder: InputBuilder,
    scheduler: Scheduler,
    prompts: Mapping[str, Prompt],
    requests: list[Request],
) -> tuple[Rows, int]:
    rows: Rows = {}
    num_preempted = 0
    while (step := scheduler.pick()) is not None:
        num_preempted += any(
            each.num_completion_tokens and not each.block_ids for each in scheduler
        )
        if step.dirty_blocks:
            runner.zero(step.dirty_blocks)
        tensors = builder.build(step, prompts)
        logits = runner.run(tensors).logits
        for piece in step.slices:
            piece.sequence.num_computed_tokens = piece.end
        for sequence, row in zip(tensors.choosers, logits, strict=True):
            index = int(sequence.job_id)
            rows[index, sequence.num_tokens - 1] = row.clone()
            if sequence.accept(later_tokens(requests[index])[sequence.num_completion_tokens]):
                scheduler.remove(sequence, is_finite=True)
    return rows, num_preempted


@torch.inference_mode()
def single(model: Model, requests: list[Request]) -> Rows:
    """The same rows from the library's full model."""
    rows: Rows = {}
    for index, request in enumerate(requests):
        forced = replace(request, token_ids=request.token_ids + later_tokens(request)[:-1])
        inputs = inputs_for_library(model, forced)
        positions = positions_for_library(model, inputs)
        logits = model.library(**inputs, position_ids=positions, use_cache=False).logits[0]
        for at in range(request.num_tokens - 1, len(forced.token_ids)):
            rows[index, at] = logits[at]
    return rows


def distance(found: Rows, expected: Rows) -> float:
    assert found.keys() == expected.keys()
    return max(float((found[key] - expected[key]).abs().max()) for key in expected)
