"""`StepTensors` in, what they tell out; owns the device memory of the KV cache."""

import os
from dataclasses import dataclass

import torch
from torch import Tensor

from workers.families.decoder import Decoder
from workers.language.attention import KvCache
from workers.language.graphs import DecodeGraphs, Recorder
from workers.language.inputs import StepTensors
from workers.language.scoring import score
from workers.machine import available_bytes
from workers.sampling import Likelihood

GPU_SHARE = 0.9  # of the memory that is free once the weights are loaded
CPU_SHARE = 0.25
CPU_CONTEXTS = 8  # full contexts; more are of little use at a CPU's speed

# A device needs many rows to be busy. A CPU is so with few, and whoever comes waits for the step
# that it is at: of 128 tokens one takes 10 ms where one of 2048 takes 220 (9.5 million parameters,
# one thread). Prompts of 480 and 2000 tokens take 1.1 and 1.2 times as long by 128 as at once.
MAX_STEP_TOKENS = 2048
MAX_STEP_TOKENS_ON_CPU = 128


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a step has given."""

    logits: Tensor  # float32 [chosen, vocab], a row for each of the choosers
    scores: tuple[tuple[Likelihood, ...], ...]  # for each of `StepTensors.scored`


class Runner:
    """Runs the decoder over packed steps."""

    def __init__(
        self,
        decoder: Decoder,
        num_blocks: int,
        block_tokens: int,
        recorder: Recorder | None = None,
    ) -> None:
        """`recorder`: what padded steps are recorded by; None: they are computed like others."""
        self._decoder = decoder
        self._graphs = None if recorder is None else DecodeGraphs(self._compute, recorder)
        self.cache = KvCache(
            decoder.kv_spec, num_blocks, block_tokens, decoder.dtype, decoder.device
        )

    @torch.inference_mode()
    def run(self, tensors: StepTensors) -> Outcome:
        """Compute a step and keep its keys and values; its logits are good until the next step."""
        if self._graphs is not None and tensors.size is not None:
            return Outcome(self._graphs.run(tensors), ())
        hidden = self._hidden(tensors)
        scores = tuple(score(hidden, rows, self._decoder) for rows in tensors.scored)
        return Outcome(self._logits(hidden, tensors), scores)

    def _compute(self, tensors: StepTensors) -> Tensor:
        return self._logits(self._hidden(tensors), tensors)

    def _logits(self, hidden: Tensor, tensors: StepTensors) -> Tensor:
        return self._decoder.logits(hidden.index_select(0, tensors.last_rows))

    def _hidden(self, tensors: StepTensors) -> Tensor:
        embeddings = self._decoder.embed(tensors.ids)
        for row, picture in tensors.splices:
            embeddings[row : row + picture.shape[1]] = picture[0]
        return self._decoder.forward(
            embeddings, tensors.positions, tensors.attention, tensors.visual
        )

    @torch.inference_mode()
    def zero(self, block_ids: tuple[int, ...]) -> None:
        """Wipe blocks of the KV cache."""
        self.cache.zero(torch.tensor(block_ids, device=self._decoder.device))


def max_step_tokens_on(device: str) -> int:
    """The limit of a step where none is set; `device` is as torch spells it."""
    return MAX_STEP_TOKENS_ON_CPU if device == "cpu" else MAX_STEP_TOKENS


def default_kv_tokens(decoder: Decoder, max_context_tokens: int) -> int:
    """Tokens that the KV cache can hold in the device's free memory.

    Where a CPU's system does not say what is free, half of all is.
    """
    token_bytes = sum(layer.num_stored for layer in decoder.kv_spec) * decoder.dtype.itemsize
    if decoder.device.type == "cuda":
        free_bytes, _ = torch.cuda.mem_get_info(decoder.device)
        return int(free_bytes * GPU_SHARE) // token_bytes
    free = available_bytes()
    if free is None:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    fitting = int(free * CPU_SHARE) // token_bytes
    return min(fitting, CPU_CONTEXTS * max_context_tokens)
