"""Continuous batching: `GenerateJob` in; `Taken`, `Started`, `Tokens` and one `LastEvent` out."""

import logging
import math
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from workers import memory
from workers.arena import Arenas
from workers.fail_kind import FailKind
from workers.families import Layout
from workers.families.decoder import Decoder
from workers.features import ELSEWHERE, Home
from workers.language import events
from workers.language.blocks import BlockPool
from workers.language.embeddings import EmbeddingReader
from workers.language.forbidding import hold_late
from workers.language.grammar import Fault, Grammars
from workers.language.graphs import Recorder
from workers.language.inputs import AttentionPath, InputBuilder, StepTensors
from workers.language.prefix import BlockKeys
from workers.language.prompts import JobRefused, Prompt, PromptReader
from workers.language.runner import Outcome, Runner, default_kv_tokens
from workers.language.sampler import Choice, Sampler
from workers.language.scheduler import Scheduler, Slice, Step
from workers.language.sequence import Sequence
from workers.language.singly import advance_singly
from workers.messages import Failed, FromWorker, GenerateJob, MapPool, Missing, PoolMapped, Taken

HELD_SECONDS = 0.002  # how long a step without any tokens waits for grammars

logger = logging.getLogger(__name__)


class Engine:
    """Answers many prompts at once, one step at a time.

    Not thread safe: one loop calls `put`, `abort` and `step`. Every job that was put ends in
    exactly one `LastEvent`, which a later `step` returns. A prompt that begins like an earlier one
    takes over what is known of it, images included: those need no embeddings.
    """

    def __init__(  # noqa: PLR0913 - the limits are the fields of `Start`, by name
        self,
        decoder: Decoder,
        layout: Layout,
        arenas: Arenas,
        *,
        kv_cache_tokens: int,
        kv_block_tokens: int,
        max_step_tokens: int,
        max_step_sequences: int,
        max_context_tokens: int,
        attend: AttentionPath | None = None,
        recorder: Recorder | None = None,
        prefix_cache: bool,
        digest_key: bytes,
        grammars: Grammars,
        home: Home = ELSEWHERE,
    ) -> None:
        """Allocate the KV cache; 0 means from free memory, and what the checkpoint allows."""
        allowed = layout.max_context_tokens
        allowed = min(max_context_tokens or allowed, allowed)
        wanted = kv_cache_tokens or default_kv_tokens(decoder, allowed)
        num_blocks = max(1, wanted // kv_block_tokens)
        self.kv_cache_tokens = num_blocks * kv_block_tokens
        self.max_context_tokens = min(allowed, self.kv_cache_tokens)
        self._runner = Runner(decoder, num_blocks, kv_block_tokens, recorder)
        self._embeddings = EmbeddingReader(decoder, arenas, home)
        self._reader = PromptReader(decoder, layout, self._embeddings, self.max_context_tokens)
        self._builder = InputBuilder(decoder, self._runner.cache, attend, pads=recorder is not None)
        self._blocks = BlockPool(num_blocks, kv_block_tokens)
        # Beside all anchors, the longest sequence finds room.
        num_longest = self._blocks.num_missing((), self.max_context_tokens)
        self._scheduler = Scheduler(
            self._blocks, max_step_tokens, max_step_sequences, num_blocks - num_longest
        )
        self._sampler = Sampler(max_step_sequences)
        self._grammars = grammars
        self._prefix_cache = prefix_cache
        self._digest_key = digest_key
        self._sequences: dict[str, Sequence] = {}
        self._prompts: dict[str, Prompt] = {}
        self._outbox: list[FromWorker] = []

    @property
    def busy(self) -> bool:
        """Whether `step` has something to do or to say."""
        return bool(self._sequences or self._outbox)

    def put(self, job: GenerateJob) -> None:
        """Queue a job. Embeddings that it needs are copied before this returns, or read in place.

        The latter are needed to the end, for a sequence that was preempted is computed anew. What
        known images gave is held to the end as well: their embeddings will be gone, if they came.
        """
        assert job.job_id not in self._sequences, f"job {job.job_id} was put twice"
        try:
            prompt = self._reader.read(job)
            sequence = self._sequence(job, prompt)
            num_known = self._scheduler.num_anchorable_tokens(sequence)
            needed = [span for span in job.spans if span.start + span.num_tokens > num_known]
            missing = tuple(span.start for span in needed if span.embeddings is None)
            if missing:
                self._outbox.append(Missing(job_id=job.job_id, starts=missing))
                return
            found = self._reader.read_pictures(needed)
        except JobRefused as error:
            self._outbox.append(Failed(job_id=job.job_id, kind=error.kind, message=error.message))
            return
        known = job.spans[: len(job.spans) - len(needed)]
        self._sequences[job.job_id] = sequence
        self._prompts[job.job_id] = replace(prompt, pictures=found.pictures)
        self._scheduler.add(sequence, known[-1].start + known[-1].num_tokens if known else 0)
        self._outbox.append(
            Taken(
                job_id=job.job_id,
                is_copied=found.is_copied,
                transfer_seconds=found.transfer_seconds,
            )
        )

    def _sequence(self, job: GenerateJob, prompt: Prompt) -> Sequence:
        num_prompt_tokens = len(prompt.token_ids)
        keys = None
        if self._prefix_cache:
            keys = BlockKeys(self._digest_key, job.salt, job.spans, self._blocks.block_tokens)
        grammar = job.sampling.grammar
        return Sequence(
            job_id=job.job_id,
            token_ids=prompt.token_ids.copy(),
            num_prompt_tokens=num_prompt_tokens,
            sampling=job.sampling,
            max_tokens=min(num_prompt_tokens + job.sampling.max_tokens, self.max_context_tokens),
            deadline=time.monotonic() + job.seconds_left,
            keys=keys,
            follower=self._grammars.begin(grammar) if grammar else None,
            is_held=bool(grammar),
        )

    def map_pool(self, message: MapPool) -> PoolMapped:
        """Map memory that holds embeddings of another worker."""
        return self._embeddings.map(message)

    def drop_pool(self, number: int) -> None:
        """Let such memory go; no job that was put needs it."""
        self._embeddings.drop(number)

    def abort(self, job_id: str) -> None:
        """End a job and free what it holds; unknown or ended jobs are no error."""
        sequence = self._sequences.get(job_id)
        if sequence is not None:
            self._finish(sequence, "abort")

    def step(self) -> list[FromWorker]:
        """Compute the next tokens of as many sequences as fit; what there is to tell."""
        self._expire()
        self._settle()
        step = self._scheduler.pick()
        if step is not None:
            self._advance(step)
        elif self._sequences and not self._outbox:
            self._grammars.wait(HELD_SECONDS)
        self._report()
        told, self._outbox = self._outbox, []
        return told

    def check(self) -> None:
        """Assert that blocks and sequences add up."""
        self._scheduler.check()
        assert set(self._scheduler) == set(self._sequences.values()), "a sequence was lost"

    def _expire(self) -> None:
        now = time.monotonic()
        for sequence in [each for each in self._sequences.values() if each.deadline <= now]:
            self._fail(sequence, "deadline", "the time limit of the request ran out")

    def _settle(self) -> None:
        """Let go on, or end, what was held until its grammar told what may follow."""
        for sequence in list(self._sequences.values()):
            if sequence.follower is None or not sequence.follower.is_ready:
                continue
            outlook = sequence.follower.outlook
            if isinstance(outlook, Fault):
                self._fail(sequence, outlook.kind, outlook.message)
            elif outlook.is_over:
                self._finish(sequence, "stop")
            else:
                sequence.is_held = False

    def _advance(self, step: Step) -> bool:
        """Run a step; a fault in it ends its sequences and nothing else. Whether it went well."""
        try:
            self._compute(step)
        except torch.AcceleratorError:
            raise  # nothing works on the device any more; a new process may do better
        except Exception as fault:
            logger.exception("a step of %d sequences failed", len(step.slices))
            if memory.is_short(fault):
                advance_singly(step, self._blocks.block_tokens, self._advance, self._fail_all)
            else:
                self._fail_all(step.slices, "internal", "the engine failed while answering")
            return False
        return True

    def _fail_all(self, slices: Iterable[Slice], kind: FailKind, message: str) -> None:
        for piece in slices:
            if piece.sequence.job_id in self._sequences:
                self._fail(piece.sequence, kind, message)

    def _compute(self, step: Step) -> None:
        if step.dirty_blocks:
            self._runner.zero(step.dirty_blocks)
        tensors = self._builder.build(step, self._prompts)
        outcome = self._runner.run(tensors)
        hold_late(tensors.choosers, self._grammars)
        for piece in step.slices:
            is_withheld = piece.is_last and piece.sequence.is_held  # then computed once more
            piece.sequence.num_computed_tokens = piece.end - is_withheld
        self._tell_scores(tensors, outcome)
        self._choose(tensors, outcome.logits)

    def _tell_scores(self, tensors: StepTensors, outcome: Outcome) -> None:
        for rows, found in zip(tensors.scored, outcome.scores, strict=True):
            if any(math.isnan(each.logprob) for each in found):
                self._fail_infinite(rows.sequence)
            else:
                rows.sequence.num_scored_tokens += len(found)
                self._outbox += events.scored(rows.sequence, found)

    def _choose(self, tensors: StepTensors, logits: Tensor) -> None:
        rows = [
            row
            for row, each in enumerate(tensors.choosers)
            if not each.is_held and each.job_id in self._sequences
        ]
        if not rows:
            return
        choosers = tuple(tensors.choosers[row] for row in rows)
        if len(choosers) < len(logits):
            logits = logits[torch.tensor(rows, device=logits.device)]
        choices = self._sampler.choose(logits, choosers)
        for sequence, choice in zip(choosers, choices, strict=True):
            self._publish(sequence, choice)

    def _fail_infinite(self, sequence: Sequence) -> None:
        logger.error("job %s: no finite logits", sequence.job_id)
        self._fail(sequence, "not_finite", "the model gave no finite scores")

    def _publish(self, sequence: Sequence, choice: Choice | None) -> None:
        if choice is None:
            self._fail_infinite(sequence)
            return
        if not sequence.num_completion_tokens:
            self._outbox.append(events.started(sequence))
        reason = sequence.accept(choice.token_id)
        if reason != "stop" and sequence.num_completion_tokens:
            self._outbox.append(events.chosen(sequence, choice))
        if reason is not None:
            self._finish(sequence, reason, choice if reason == "stop" else None)
        elif sequence.follower is not None:
            sequence.follower.advance(choice.token_id)

    def _finish(
        self,
        sequence: Sequence,
        reason: Literal["stop", "length", "abort"],
        stop: Choice | None = None,
    ) -> None:
        # The last logits were finite, so all keys and values behind them are.
        is_seen = sequence.num_finite_tokens == sequence.num_computed_tokens
        self._forget(sequence, is_finite=is_seen and reason != "abort")
        self._outbox.append(events.finished(sequence, reason, stop))

    def _fail(self, sequence: Sequence, kind: FailKind, message: str) -> None:
        self._forget(sequence, is_finite=False)
        self._outbox.append(Failed(job_id=sequence.job_id, kind=kind, message=message))

    def _forget(self, sequence: Sequence, is_finite: bool) -> None:
        self._scheduler.remove(sequence, is_finite)
        self._sampler.forget(sequence)
        del self._sequences[sequence.job_id], self._prompts[sequence.job_id]

    def _report(self) -> None:
        """Tell the load; the worker's loop passes on what is news."""
        if not self.busy:
            return
        if not self._sequences:
            self.check()
        self._outbox.append(self._scheduler.load())
