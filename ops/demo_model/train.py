"""Train the demo model on pictures drawn as it goes, on one CPU thread; a stop loses minutes."""

import argparse
import asyncio
import logging
import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from ops.demo_model import checkpoint
from ops.demo_model.batches import Batch, BatchMaker
from ops.demo_model.checkpoint import Progress
from ops.demo_model.drafts import mix_at
from ops.demo_model.evaluate import Local, Sitting, as_misses, as_table, examine
from ops.demo_model.model import Learner, Losses
from ops.demo_model.optimiser import Optimisers
from ops.demo_model.rows import Vocabulary

SHIPPED = Path("workers/demo_model")
WARM_UP_STEPS = 80
HEADS_FIRST_STEPS = 250  # a warm start has fresh heads, which must not push the trunk about
log = logging.getLogger("demo_model")


@dataclass(frozen=True, slots=True)
class Plan:
    """What one run does; the command line fills it."""

    source: Path  # tokenizer, template, processor and shape; the weights too in a warm start
    work: Path
    is_warm: bool
    is_polish: bool  # words only: the tower stays, and so do its labels and the decoder's
    num_steps: int
    num_vision_steps: int
    num_rows: int | None  # of a batch; None: what the mix says
    seed: int
    muon_rate: float
    adam_rate: float
    decay_from: float  # share of the steps after which the rate falls, linearly to zero
    save_minutes: float


class Trainer:
    """Owns the model, the optimisers and the progress of one run."""

    def __init__(self, plan: Plan) -> None:
        torch.manual_seed(plan.seed)
        self.plan = plan
        load = checkpoint.load_model if plan.is_warm else checkpoint.new_model
        vocabulary = Vocabulary(Tokenizer.from_file(str(plan.source / "tokenizer.json")))
        self.learner = Learner(load(plan.source), vocabulary)
        self.learner.model.model.visual.requires_grad_(not plan.is_polish)
        self.optimisers = Optimisers(self.learner, plan.muon_rate, plan.adam_rate)
        processor = Qwen2VLImageProcessorPil.from_pretrained(plan.source)
        self.batches = BatchMaker(vocabulary, processor)
        self.progress = Progress(0, 0, 0, 0.0)
        if (plan.work / checkpoint.STATE_FILE).exists():
            self.progress = checkpoint.restore_state(plan.work, self.learner, self.optimisers)

    def run(self) -> None:
        """Train to the end of the plan, saving now and then."""
        saved_at = time.monotonic()
        while self.progress.step < self.plan.num_steps:
            losses = self.step()
            self._report(losses)
            if time.monotonic() - saved_at > 60 * self.plan.save_minutes:
                self.save()
                saved_at = time.monotonic()
        self.save()

    def step(self) -> Losses:
        """One batch, one update."""
        started = time.monotonic()
        batch = self._next_batch()
        losses = self._forward(batch)
        torch.autograd.backward(self._weigh(losses))
        self.optimisers.step(self.rate())
        done = self.progress
        self.progress = Progress(
            step=done.step + 1,
            num_images=done.num_images + len(batch.grid),
            num_answers=done.num_answers + _num_answers(batch),
            seconds=done.seconds + time.monotonic() - started,
        )
        return losses

    def save(self) -> None:
        """State to go on from, and the weights as a checkpoint directory."""
        self.plan.work.mkdir(parents=True, exist_ok=True)
        checkpoint.save_state(self.plan.work, self.learner, self.optimisers, self.progress)
        checkpoint.export(self.learner, self.plan.source, self.plan.work / "export")

    def rate(self) -> float:
        """The share of the full learning rate for the next step."""
        step, plan = self.progress.step, self.plan
        since_start = step if self._is_vision_only() else step - plan.num_vision_steps
        warm_up = min(1.0, (since_start + 1) / WARM_UP_STEPS)
        left = (1 - step / plan.num_steps) / (1 - plan.decay_from)
        return warm_up * min(1.0, max(0.01, left))

    def _is_vision_only(self) -> bool:
        return self.progress.step < self.plan.num_vision_steps

    def _next_batch(self) -> Batch:
        step, plan = self.progress.step, self.plan
        if self._is_vision_only():
            return self.batches.make_pictures(plan.seed, step)
        joint_steps = max(1, plan.num_steps - plan.num_vision_steps)
        share = (step - plan.num_vision_steps) / joint_steps
        mix = mix_at(share, plan.is_warm, step, plan.is_polish)
        if plan.num_rows is not None:
            mix = replace(mix, num_rows=plan.num_rows)
        return self.batches.make(plan.seed, step, mix)

    def _forward(self, batch: Batch) -> Losses:
        """Compute in bfloat16; gradients reach the float32 parameters through the cast."""
        cast = {name: tensor.bfloat16() for name, tensor in self.learner.named_parameters()}
        losses: Losses = torch.func.functional_call(
            self.learner, cast, (batch, self._is_vision_only())
        )
        return losses

    def _weigh(self, losses: Losses) -> Tensor:
        if self._is_vision_only():
            return 0.3 * losses.patches
        plan, step = self.plan, self.progress.step
        if plan.is_polish:
            return losses.answers
        heads = min(1.0, step / HEADS_FIRST_STEPS) ** 2 if plan.is_warm else 1.0
        aid = 0.3 if not plan.is_warm and step < plan.num_steps / 2 else 0.15
        total: Tensor = losses.answers + heads * (
            aid * losses.patches + 0.5 * losses.twins + 0.8 * losses.ranks
        )
        return total

    def _report(self, losses: Losses) -> None:
        progress = self.progress
        if progress.step % 25 != 0 and progress.step > 3:
            return
        left = (self.plan.num_steps - progress.step) * progress.seconds / progress.step
        log.info(
            "step %d/%d  answers %.4f  patches %.3f  twins %.3f  ranks %.3f  "
            "right %.3f  rate %.2f  %d images  %d answers  %.0f min done, %.0f min left",
            *(progress.step, self.plan.num_steps),
            *(losses.answers.item(), losses.patches.item()),
            *(losses.twins.item(), losses.ranks.item()),
            *(losses.accuracy, self.rate(), progress.num_images, progress.num_answers),
            *(progress.seconds / 60, left / 60),
        )


def _num_answers(batch: Batch) -> int:
    """Answers begin where a learned token follows one that is not."""
    learned = batch.weights > 0
    return int((learned[:, 1:] & ~learned[:, :-1]).sum())


def read_plan() -> Plan:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, required=True, help="state, log and export go here")
    parser.add_argument("--source", type=Path, default=SHIPPED, help="checkpoint directory")
    parser.add_argument("--warm", action="store_true", help="start from the source's weights")
    parser.add_argument(
        "--polish", action="store_true", help="warm, with the tower frozen, for weak wordings"
    )
    parser.add_argument("--steps", type=int, default=9000)
    parser.add_argument("--vision-steps", type=int, default=600, help="from scratch only")
    parser.add_argument("--rows", type=int, help="packed rows of a batch")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--muon-rate", type=float, default=0.015)
    parser.add_argument("--adam-rate", type=float, default=2e-3)
    parser.add_argument("--decay-from", type=float, default=0.45)
    parser.add_argument("--save-minutes", type=float, default=4.0)
    options = parser.parse_args()
    return Plan(
        source=options.source,
        work=options.work,
        is_warm=options.warm or options.polish,
        is_polish=options.polish,
        num_steps=options.steps,
        num_vision_steps=0 if options.warm or options.polish else options.vision_steps,
        num_rows=options.rows,
        seed=options.seed,
        muon_rate=options.muon_rate,
        adam_rate=options.adam_rate,
        decay_from=options.decay_from,
        save_minutes=options.save_minutes,
    )


def main() -> None:
    """Train, or go on training when the work directory holds a state."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_num_threads(1)
    plan = read_plan()
    Trainer(plan).run()
    exam = Sitting(wordings="watched", num_items=40)
    results = asyncio.run(examine(Local(plan.work / "export"), exam))
    log.info("the exam in watched wordings:\n%s\n%s", as_table(results), as_misses(results, 2))


if __name__ == "__main__":
    main()
