"""A `GenerateJob` in, its `Prompt` out: images copied out of the arena, positions worked out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.arena import Arenas, BadRegion
from workers.families import Layout
from workers.families.decoder import Decoder
from workers.messages import BIAS_FIELDS, FailKind, GenerateJob, Sampling, Span


class JobRefused(Exception):
    """A job that cannot run; `kind` says whose mistake it is."""

    def __init__(self, kind: FailKind, message: str) -> None:
        super().__init__(message)
        self.kind: FailKind = kind
        self.message = message


@dataclass(frozen=True, slots=True)
class Picture:
    """One image of a prompt."""

    start: int  # index of its first token
    end: int  # index after its last token
    embeddings: Tensor  # [1 + deepstack levels, tokens, hidden], on the device


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a job brings, checked and on the device."""

    token_ids: list[int]
    positions: np.ndarray[Any, np.dtype[np.int64]]  # [axes, tokens]
    offset: int  # index of a later token + offset = its position on every axis
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Reads prompts for one engine."""

    decoder: Decoder
    layout: Layout
    arenas: Arenas
    max_context_tokens: int

    def read(self, job: GenerateJob) -> Prompt:
        """Check a job and copy what it points to.

        Raises:
            JobRefused: the prompt is too long, or spans, shapes or sizes do not fit together.
        """
        if len(job.token_ids) % 4:
            raise JobRefused("internal", "the token ids are no whole int32 numbers")
        ids = np.frombuffer(job.token_ids, "<i4")
        self._check_ids(ids)
        self._check_sampling(job.sampling)
        _check_order(job.spans, len(ids))
        pictures = tuple(self._read_picture(span) for span in job.spans)
        try:
            spans = [(span.start, span.grid) for span in job.spans]
            positions, offset = self.layout.positions(len(ids), spans)
        except ValueError as error:
            raise JobRefused("internal", "the images' grids do not fit the prompt") from error
        return Prompt(ids.tolist(), positions, offset, pictures)

    def _check_ids(self, ids: np.ndarray[Any, np.dtype[np.int32]]) -> None:
        if not len(ids):
            raise JobRefused("bad_input", "the prompt has no tokens")
        if len(ids) >= self.max_context_tokens:
            raise JobRefused(
                "bad_input",
                f"the prompt has {len(ids)} tokens; with at least one token of answer it must "
                f"fit into a context of {self.max_context_tokens}",
            )
        if ids.min() < 0 or ids.max() >= self.decoder.vocab_size:
            raise JobRefused("internal", f"a token id is not below {self.decoder.vocab_size}")

    def _check_sampling(self, sampling: Sampling) -> None:
        """Refuse ids that have no logit; one bad row would end all of a step."""
        biased = np.frombuffer(sampling.logit_bias, np.dtype(BIAS_FIELDS))["token_id"]
        hidden = sampling.stop_token_ids if sampling.min_tokens else ()
        for name, ids in (("logit_bias", biased), ("stop_token_ids", np.array(hidden, int))):
            if len(ids) and (ids.min() < 0 or ids.max() >= self.decoder.vocab_size):
                raise JobRefused(
                    "bad_input",
                    f"{name}: the model's tokens are 0 to {self.decoder.vocab_size - 1}",
                )

    def _read_picture(self, span: Span) -> Picture:
        """Copy one image's embeddings to the device, in the decoder's dtype."""
        reference, decoder = span.embeddings, self.decoder
        expected = (1 + decoder.num_deepstack_levels, span.num_tokens, decoder.hidden_size)
        if reference.shape != expected:
            raise JobRefused("internal", f"embeddings are {reference.shape}, not {expected}")
        dtype = getattr(torch, reference.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise JobRefused("internal", f"embeddings of type {reference.dtype!r}")
        count = int(np.prod(expected))
        try:
            content = self.arenas.view(reference.region)
        except BadRegion as error:
            raise JobRefused("internal", str(error)) from error
        if content.nbytes < count * dtype.itemsize:
            raise JobRefused(
                "internal", f"embeddings are {content.nbytes} bytes, not {count * dtype.itemsize}"
            )
        shared = torch.frombuffer(content, dtype=dtype, count=count).view(expected)
        own = shared.to(decoder.device, decoder.dtype, copy=True)
        return Picture(span.start, span.start + span.num_tokens, own)


def _check_order(spans: Sequence[Span], num_tokens: int) -> None:
    after = 0
    for span in spans:
        end = span.start + span.num_tokens
        if span.num_tokens < 1 or span.start < after or end > num_tokens:
            raise JobRefused("internal", f"image tokens {span.start} to {end} are out of place")
        after = end
