"""A `GenerateJob` in, its `Prompt` out: images brought to the device, positions worked out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.fail_kind import FailKind
from workers.families import Layout
from workers.families.decoder import Decoder
from workers.language.embeddings import EmbeddingReader, EmbeddingsLost, Found
from workers.messages import GenerateJob, Span
from workers.ranges import BadRegion
from workers.sampling import BIAS_FIELDS, Sampling


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
    """What a job brings, checked and on the device.

    Images that are known from earlier prompts, which nobody has to compute, are not among its
    pictures.
    """

    token_ids: list[int]
    positions: np.ndarray[Any, np.dtype[np.int64]]  # [axes, tokens]
    offset: int  # index of a later token + offset = its position on every axis
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class Pictures:
    """Images of a prompt, ready to be computed with."""

    pictures: tuple[Picture, ...]
    is_copied: bool  # whether their regions are not needed any more
    transfer_seconds: float  # time to copy them


@dataclass(frozen=True, slots=True)
class PromptReader:
    """Reads prompts for one engine."""

    decoder: Decoder
    layout: Layout
    embeddings: EmbeddingReader
    max_context_tokens: int

    def read(self, job: GenerateJob) -> Prompt:
        """Check a job, whose pictures are not read yet.

        Raises:
            JobRefused: the prompt is too long, or the spans do not fit it.
        """
        if len(job.token_ids) % 4:
            raise JobRefused("internal", "the token ids are no whole int32 numbers")
        ids = np.frombuffer(job.token_ids, "<i4")
        self._check_ids(ids, job.sampling.max_tokens)
        self._check_sampling(job.sampling)
        _check_order(job.spans, len(ids))
        try:
            spans = [(span.start, span.grid) for span in job.spans]
            positions, offset = self.layout.positions(len(ids), spans)
        except ValueError as error:
            raise JobRefused("internal", "the images' grids do not fit the prompt") from error
        return Prompt(ids.tolist(), positions, offset, ())

    def read_pictures(self, spans: Sequence[Span]) -> Pictures:
        """Copy the embeddings of images, which all have some, unless they lie in this process.

        Raises:
            JobRefused: shapes or sizes do not fit together, or the embeddings are gone.
        """
        began_at = time.monotonic()
        found = [self._read(span) for span in spans]
        if any(each.is_copied for each in found):
            self.embeddings.wait()
        return Pictures(
            pictures=tuple(map(_picture, spans, found)),
            is_copied=all(each.is_copied for each in found),
            transfer_seconds=time.monotonic() - began_at,
        )

    def _check_ids(self, ids: np.ndarray[Any, np.dtype[np.int32]], max_tokens: int) -> None:
        if not len(ids):
            raise JobRefused("bad_input", "the prompt has no tokens")
        if len(ids) + min(1, max_tokens) > self.max_context_tokens:
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

    def _read(self, span: Span) -> Found:
        reference, decoder = span.embeddings, self.decoder
        assert reference is not None, "asked to read an image that came without embeddings"
        expected = (1 + decoder.num_deepstack_levels, span.num_tokens, decoder.hidden_size)
        if reference.shape != expected:
            raise JobRefused("internal", f"embeddings are {reference.shape}, not {expected}")
        dtype = getattr(torch, reference.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise JobRefused("internal", f"embeddings of type {reference.dtype!r}")
        num_bytes = int(np.prod(expected)) * dtype.itemsize
        if reference.region.num_bytes < num_bytes:
            raise JobRefused(
                "internal", f"embeddings are {reference.region.num_bytes} bytes, not {num_bytes}"
            )
        try:
            return self.embeddings.read(reference, dtype)
        except BadRegion as error:
            raise JobRefused("internal", str(error)) from error
        except EmbeddingsLost as error:
            raise JobRefused("gone", str(error)) from error


def _picture(span: Span, found: Found) -> Picture:
    return Picture(span.start, span.start + span.num_tokens, found.embeddings)


def _check_order(spans: Sequence[Span], num_tokens: int) -> None:
    after = 0
    for span in spans:
        end = span.start + span.num_tokens
        if span.num_tokens < 1 or span.start < after or end > num_tokens:
            raise JobRefused("internal", f"image tokens {span.start} to {end} are out of place")
        after = end
