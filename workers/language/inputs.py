"""A `Step` in, the tensors of its forward pass out; keeps what prompts bring along."""

from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from workers.families import Layout
from workers.families.decoder import Decoder, VisualRows
from workers.language.attention import ChunkRows, KvCache, PackedAttention, SingleRows
from workers.language.scheduler import Slice, Step
from workers.language.sequence import Sequence
from workers.messages import FailKind, GenerateJob, Region, Span

AXES = 3
LEAST_BUCKET_TOKENS = 256  # contexts up to this length are computed together


class Arenas(Protocol):
    """The shared memory that links carry bulk bytes in."""

    def view(self, region: Region) -> memoryview:
        """The bytes of a region."""
        ...


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
    """What a prompt brings that its token ids do not say."""

    positions: np.ndarray[Any, np.dtype[np.int64]]  # [axes, prompt tokens]
    offset: int  # index of a later token + offset = its position
    pictures: tuple[Picture, ...]


@dataclass(frozen=True, slots=True)
class StepTensors:
    """One packed forward pass; rows are single tokens first, then chunks."""

    ids: Tensor  # [tokens], int64
    positions: Tensor  # [axes, tokens], int64
    attention: PackedAttention
    splices: tuple[tuple[int, Tensor], ...]  # first row, embeddings [1 + levels, rows, hidden]
    visual: VisualRows | None
    last_rows: Tensor  # [chosen], int64; rows whose logits are wanted
    choosers: tuple[Sequence, ...]  # the sequence of each of them


class Inputs:
    """Builds step tensors. Owns the prompts, by job id."""

    def __init__(self, decoder: Decoder, layout: Layout, arenas: Arenas, cache: KvCache) -> None:
        self._decoder = decoder
        self._layout = layout
        self._arenas = arenas
        self._cache = cache
        self._prompts: dict[str, Prompt] = {}

    def add(self, job: GenerateJob) -> list[int]:
        """Copy a job's embeddings out of the arena and work out its positions.

        Returns:
            the prompt's token ids

        Raises:
            JobRefused: spans, shapes or sizes do not fit together.
        """
        ids = np.frombuffer(job.token_ids, "<i4")
        if not len(ids):
            raise JobRefused("bad_input", "the prompt has no tokens")
        if ids.min() < 0 or ids.max() >= self._decoder.vocab_size:
            raise JobRefused("internal", f"a token id is outside 0..{self._decoder.vocab_size - 1}")
        _check_order(job.spans, len(ids))
        pictures = tuple(self._read(span) for span in job.spans)
        spans = [(span.start, span.grid) for span in job.spans]
        positions, offset = self._layout.positions(len(ids), spans)
        self._prompts[job.job_id] = Prompt(positions, offset, pictures)
        token_ids: list[int] = ids.tolist()
        return token_ids

    def drop(self, job_id: str) -> None:
        """Forget what a job brought."""
        del self._prompts[job_id]

    def build(self, step: Step) -> StepTensors:
        """Lay the slices of a step out in rows."""
        # Singles of similar context lie side by side, so that little padding is computed.
        slices = sorted(step.slices, key=lambda piece: (piece.length > 1, piece.end))
        firsts = np.cumsum([0] + [piece.length for piece in slices])
        numbers = np.empty((AXES + 2, firsts[-1]), np.int64)  # ids, positions, slots
        splices: list[tuple[int, Tensor]] = []
        for first, piece in zip(firsts.tolist(), slices, strict=False):
            self._fill(numbers[:, first : first + piece.length], piece)
            splices += self._splices(first, piece)
        table = self._to_device(numbers)
        chosen = [index for index, piece in enumerate(slices) if piece.is_last]
        return StepTensors(
            ids=table[0],
            positions=table[1:-1],
            attention=self._attention(table[-1], slices),
            splices=tuple(splices),
            visual=self._visual(len(table[0]), splices),
            last_rows=self._to_device(firsts[1:][chosen] - 1),
            choosers=tuple(slices[index].sequence for index in chosen),
        )

    def _read(self, span: Span) -> Picture:
        """Copy one image's embeddings to the device, in the decoder's dtype."""
        reference = span.embeddings
        decoder = self._decoder
        expected = (1 + decoder.num_deepstack_levels, span.num_tokens, decoder.hidden_size)
        if tuple(reference.shape) != expected:
            raise JobRefused("internal", f"embeddings are {reference.shape}, not {expected}")
        dtype = getattr(torch, reference.dtype, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise JobRefused("internal", f"embeddings of type {reference.dtype!r}")
        num_bytes = int(np.prod(expected)) * dtype.itemsize
        content = self._arenas.view(reference.region)
        if len(content) < num_bytes:
            raise JobRefused("internal", f"embeddings are {len(content)} bytes, not {num_bytes}")
        shared = torch.frombuffer(content, dtype=dtype, count=int(np.prod(expected)))
        own = shared.view(expected).to(decoder.device, decoder.dtype, copy=True)
        return Picture(span.start, span.start + span.num_tokens, own)

    def _fill(self, numbers: np.ndarray[Any, np.dtype[np.int64]], piece: Slice) -> None:
        """Ids, positions and slots of one slice, into columns [axes + 2, length]."""
        sequence, size = piece.sequence, self._cache.block_tokens
        prompt = self._prompts[sequence.job_id]
        if piece.length == 1 and piece.start >= sequence.num_prompt_tokens:
            position = piece.start + prompt.offset
            slot = sequence.block_ids[piece.start // size] * size + piece.start % size
            numbers[:, 0] = (sequence.token_ids[piece.start], *[position] * AXES, slot)
            return
        index = np.arange(piece.start, piece.end)
        read = min(max(sequence.num_prompt_tokens - piece.start, 0), piece.length)
        numbers[0] = sequence.token_ids[piece.start : piece.end]
        numbers[1:-1, :read] = prompt.positions[:, piece.start : piece.start + read]
        numbers[1:-1, read:] = index[read:] + prompt.offset
        numbers[-1] = np.asarray(sequence.block_ids)[index // size] * size + index % size

    def _splices(self, first: int, piece: Slice) -> list[tuple[int, Tensor]]:
        """The images that lie in a slice, whole or in part."""
        found = []
        for picture in self._prompts[piece.sequence.job_id].pictures:
            start, end = max(piece.start, picture.start), min(piece.end, picture.end)
            if start < end:
                rows = picture.embeddings[:, start - picture.start : end - picture.start]
                found.append((first + start - piece.start, rows))
        return found

    def _visual(self, num_rows: int, splices: list[tuple[int, Tensor]]) -> VisualRows | None:
        if not splices or not self._decoder.num_deepstack_levels:
            return None
        mask = np.zeros(num_rows, np.bool_)
        for row, embeddings in splices:
            mask[row : row + embeddings.shape[1]] = True
        levels = torch.cat([embeddings[1:] for _, embeddings in splices], dim=1)
        return VisualRows(self._to_device(mask), levels)

    def _attention(self, slots: Tensor, slices: list[Slice]) -> PackedAttention:
        num_singles = sum(piece.length == 1 for piece in slices)
        singles, chunks = [], []
        start = 0
        while start < num_singles:
            end = _bucket_end(slices, start, num_singles)
            singles.append(self._singles(start, slices[start:end]))
            start = end
        for piece in slices[num_singles:]:
            chunks.append(self._chunk(start, piece))
            start += piece.length
        return PackedAttention(self._cache, slots, tuple(singles), tuple(chunks))

    def _singles(self, start: int, slices: list[Slice]) -> SingleRows:
        lengths = [piece.end for piece in slices]
        num_blocks = -(-lengths[-1] // self._cache.block_tokens)
        table = np.empty((len(slices), num_blocks), np.int64)
        for row, piece in zip(table, slices, strict=True):
            blocks = piece.sequence.block_ids[:num_blocks]
            row[: len(blocks)] = blocks
            row[len(blocks) :] = blocks[0]  # its own: another's may hold NaN
        mask = None
        if lengths[0] < lengths[-1]:
            seen = np.arange(lengths[-1]) < np.asarray(lengths)[:, None]
            mask = self._mask(seen)[:, None, None]
        rows = slice(start, start + len(slices))
        return SingleRows(rows, self._to_device(table), lengths[-1], mask)

    def _chunk(self, start: int, piece: Slice) -> ChunkRows:
        rows = slice(start, start + piece.length)
        if not piece.start:
            return ChunkRows(rows, None, piece.end, None)
        num_blocks = -(-piece.end // self._cache.block_tokens)
        table = np.asarray(piece.sequence.block_ids[:num_blocks])[None]
        seen = np.tri(piece.length, piece.end, piece.start, np.bool_)
        return ChunkRows(rows, self._to_device(table), piece.end, self._mask(seen))

    def _mask(self, seen: np.ndarray[Any, np.dtype[np.bool_]]) -> Tensor:
        mask = torch.zeros(seen.shape, dtype=self._decoder.dtype, device=self._decoder.device)
        return mask.masked_fill_(self._to_device(~seen), -torch.inf)

    def _to_device(self, numbers: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(numbers).to(self._decoder.device, non_blocking=True)


def _bucket_end(slices: list[Slice], start: int, stop: int) -> int:
    """Index after the slices whose context is at most twice that of `start`, the shortest."""
    limit = max(2 * slices[start].end, LEAST_BUCKET_TOKENS)
    end = start
    while end < stop and slices[end].end <= limit:
        end += 1
    return end


def _check_order(spans: Several[Span], num_tokens: int) -> None:
    after = 0
    for span in spans:
        end = span.start + span.num_tokens
        if span.num_tokens < 1 or span.start < after or end > num_tokens:
            raise JobRefused(
                "internal", f"image tokens {span.start} to {end} overlap or lie outside"
            )
        after = end
