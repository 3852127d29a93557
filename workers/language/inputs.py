"""A `Step` in, the tensors of its forward pass out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from workers.families.decoder import Attention, Decoder, VisualRows
from workers.language.attention import ChunkRows, KvCache, PackedAttention, SingleRows
from workers.language.prompts import Prompt
from workers.language.scheduler import Slice, Step
from workers.language.scoring import ScoredRows, rows_to_score
from workers.language.sequence import Sequence

# The slices of a step in, laid out as `build_attention` says; their attention out.
AttentionPath = Callable[[KvCache, Tensor, list[Slice], torch.dtype], Attention]

LEAST_BUCKET_TOKENS = 256  # contexts up to this length are computed together
# Of a padded step; beyond them the work itself takes longer than to start it.
MAX_PADDED_ROWS = 256
MAX_PADDED_TOKENS = 4096  # of context


@dataclass(frozen=True, slots=True)
class DecodeSize:
    """What a step that only decodes is padded to, so that many steps have the same shape."""

    num_rows: int
    num_blocks: int  # of each row


@dataclass(frozen=True, slots=True)
class StepTensors:
    """One packed forward pass; rows are single tokens first, then chunks."""

    ids: Tensor  # [tokens], int64
    positions: Tensor  # [axes, tokens], int64
    attention: Attention
    splices: tuple[tuple[int, Tensor], ...]  # first row, embeddings [1 + levels, rows, hidden]
    visual: VisualRows | None
    last_rows: Tensor  # [chosen], int64; rows whose logits are wanted
    choosers: tuple[Sequence, ...]  # the sequence of each of them
    scored: tuple[ScoredRows, ...] = ()  # whose likelihoods are wanted
    size: DecodeSize | None = None  # rows may be padding; None: none is


class InputBuilder:
    """Builds the tensors of one engine's steps."""

    def __init__(
        self,
        decoder: Decoder,
        cache: KvCache,
        attend: AttentionPath | None = None,
        *,
        pads: bool = False,
    ) -> None:
        """Build for one way of attention, torch's if none is given.

        With `pads` steps that only decode come in few sizes, always for torch's.
        """
        self._decoder = decoder
        self._cache = cache
        self._attend = attend or build_attention
        self._pads = pads

    def build(self, step: Step, prompts: Mapping[str, Prompt]) -> StepTensors:
        """Lay the slices of a step out in rows; `prompts` are found by job id."""
        device = self._decoder.device
        size = self._size_of(step.slices) if self._pads else None
        if size is not None:
            return self._padded(step.slices, size, prompts)
        # Singles of similar context lie side by side, so that little padding is computed.
        slices = sorted(step.slices, key=lambda piece: (piece.length > 1, piece.end))
        firsts = np.cumsum([0] + [piece.length for piece in slices])
        num_rows = self._decoder.num_axes + 2  # ids, positions, slots
        numbers = np.empty((num_rows, firsts[-1]), np.int64)
        splices: list[tuple[int, Tensor]] = []
        for first, piece in zip(firsts.tolist(), slices, strict=False):
            prompt = prompts[piece.sequence.job_id]
            self._fill(numbers[:, first : first + piece.length], piece, prompt)
            if piece.start < piece.sequence.num_prompt_tokens:
                splices += _splices(first, piece, prompt)
        table = _to_device(numbers, device)
        chosen = [index for index, piece in enumerate(slices) if piece.is_last]
        scored = map(rows_to_score, slices, firsts.tolist())
        return StepTensors(
            ids=table[0],
            positions=table[1:-1],
            attention=self._attend(self._cache, table[-1], slices, self._decoder.dtype),
            splices=tuple(splices),
            visual=self._visual(splices),
            last_rows=_to_device(firsts[1:][chosen] - 1, device),
            choosers=tuple(slices[index].sequence for index in chosen),
            scored=tuple(each for each in scored if each is not None),
        )

    def _size_of(self, slices: tuple[Slice, ...]) -> DecodeSize | None:
        """The size to pad a step to; None if it does more than decode, or is too large."""
        if any(piece.start < piece.sequence.num_prompt_tokens for piece in slices):
            return None
        num_tokens = max(piece.end for piece in slices)
        if len(slices) > MAX_PADDED_ROWS or num_tokens > MAX_PADDED_TOKENS:
            return None
        least = max(num_tokens, LEAST_BUCKET_TOKENS)
        num_blocks = -(-least // self._cache.block_tokens)
        return DecodeSize(_power_of_two(len(slices)), _power_of_two(num_blocks))

    def _padded(
        self, slices: tuple[Slice, ...], size: DecodeSize, prompts: Mapping[str, Prompt]
    ) -> StepTensors:
        """A step in which rows beyond those of `slices` write to and see blocks of nobody."""
        device, cache = self._decoder.device, self._cache
        numbers = np.zeros((self._decoder.num_axes + 2, size.num_rows), np.int64)
        numbers[-1] = cache.spare_block * cache.block_tokens
        blocks = np.full((size.num_rows, size.num_blocks), cache.spare_block)
        lengths = np.ones(size.num_rows, np.int64)
        for row, piece in enumerate(slices):
            self._fill(numbers[:, row : row + 1], piece, prompts[piece.sequence.job_id])
            _fill_blocks(blocks[row], piece)
            lengths[row] = piece.end
        num_keys = size.num_blocks * cache.block_tokens
        mask = _mask(np.arange(num_keys) >= lengths[:, None], device, self._decoder.dtype)
        part = SingleRows(
            slice(0, size.num_rows), _to_device(blocks, device), num_keys, mask[:, None, None]
        )
        table = _to_device(numbers, device)
        return StepTensors(
            ids=table[0],
            positions=table[1:-1],
            attention=PackedAttention(cache, table[-1], (part,), ()),
            splices=(),
            visual=None,
            last_rows=torch.arange(len(slices), device=device),
            choosers=tuple(piece.sequence for piece in slices),
            size=size,
        )

    def _fill(
        self, numbers: np.ndarray[Any, np.dtype[np.int64]], piece: Slice, prompt: Prompt
    ) -> None:
        """Ids, positions and slots of one slice, into columns [axes + 2, length]."""
        sequence, size = piece.sequence, self._cache.block_tokens
        if piece.length == 1 and piece.start >= sequence.num_prompt_tokens:
            numbers[0] = sequence.token_ids[piece.start]
            numbers[1:-1] = piece.start + prompt.offset
            numbers[-1] = sequence.block_ids[piece.start // size] * size + piece.start % size
            return
        index = np.arange(piece.start, piece.end)
        read = min(max(sequence.num_prompt_tokens - piece.start, 0), piece.length)
        numbers[0] = sequence.token_ids[piece.start : piece.end]
        numbers[1:-1, :read] = prompt.positions[:, piece.start : piece.start + read]
        numbers[1:-1, read:] = index[read:] + prompt.offset
        numbers[-1] = np.asarray(sequence.block_ids)[index // size] * size + index % size

    def _visual(self, splices: list[tuple[int, Tensor]]) -> VisualRows | None:
        if not splices or not self._decoder.num_deepstack_levels:
            return None
        parts = [np.arange(row, row + embeddings.shape[1]) for row, embeddings in splices]
        levels = torch.cat([embeddings[1:] for _, embeddings in splices], dim=1)
        return VisualRows(_to_device(np.concatenate(parts), self._decoder.device), levels)


def build_attention(
    cache: KvCache, slots: Tensor, slices: list[Slice], dtype: torch.dtype
) -> PackedAttention:
    """Attention over rows laid out as `slices`: single tokens first, by context, then chunks.

    Args:
        cache: where keys and values are.
        slots: int64 [rows], on the device.
        slices: cover the rows in order.
        dtype: of queries, keys and values.
    """
    num_singles = sum(piece.length == 1 for piece in slices)
    singles, chunks = [], []
    start = 0
    while start < num_singles:
        end = _bucket_end(slices, start, num_singles)
        singles.append(_singles(start, slices[start:end], cache.block_tokens, slots.device, dtype))
        start = end
    for piece in slices[num_singles:]:
        chunks.append(_chunk(start, piece, cache.block_tokens, slots.device, dtype))
        start += piece.length
    return PackedAttention(cache, slots, tuple(singles), tuple(chunks))


def _singles(
    start: int, slices: list[Slice], block_tokens: int, device: torch.device, dtype: torch.dtype
) -> SingleRows:
    lengths = [piece.end for piece in slices]
    num_blocks = -(-lengths[-1] // block_tokens)
    table = np.empty((len(slices), num_blocks), np.int64)
    for row, piece in zip(table, slices, strict=True):
        _fill_blocks(row, piece)
    mask = None
    if lengths[0] < lengths[-1]:
        is_hidden = np.arange(lengths[-1]) >= np.asarray(lengths)[:, None]
        mask = _mask(is_hidden, device, dtype)[:, None, None]
    rows = slice(start, start + len(slices))
    return SingleRows(rows, _to_device(table, device), lengths[-1], mask)


def _fill_blocks(row: np.ndarray[Any, np.dtype[np.int64]], piece: Slice) -> None:
    """The blocks that a single token sees, into its row of a table."""
    blocks = piece.sequence.block_ids[: len(row)]
    row[: len(blocks)] = blocks
    row[len(blocks) :] = blocks[0]  # its own: another's may hold NaN


def _power_of_two(number: int) -> int:
    """The least that is not below `number`, which is positive."""
    return 1 << (number - 1).bit_length()


def _chunk(
    start: int, piece: Slice, block_tokens: int, device: torch.device, dtype: torch.dtype
) -> ChunkRows:
    rows = slice(start, start + piece.length)
    if not piece.start:
        return ChunkRows(rows, None, piece.end, None)
    num_blocks = -(-piece.end // block_tokens)
    table = np.array([piece.sequence.block_ids[:num_blocks]])
    is_hidden = ~np.tri(piece.length, piece.end, piece.start, np.bool_)
    mask = _mask(is_hidden, device, dtype)
    return ChunkRows(rows, _to_device(table, device), piece.end, mask)


def _mask(
    is_hidden: np.ndarray[Any, np.dtype[np.bool_]], device: torch.device, dtype: torch.dtype
) -> Tensor:
    mask = torch.zeros(is_hidden.shape, dtype=dtype, device=device)
    return mask.masked_fill_(_to_device(is_hidden, device), -torch.inf)


def _to_device(numbers: np.ndarray[Any, Any], device: torch.device) -> Tensor:
    return torch.from_numpy(numbers).to(device, non_blocking=True)


def _bucket_end(slices: list[Slice], start: int, stop: int) -> int:
    """Index after the slices whose context is at most twice that of `start`, the shortest."""
    limit = max(2 * slices[start].end, LEAST_BUCKET_TOKENS)
    end = start
    while end < stop and slices[end].end <= limit:
        end += 1
    return end


def _splices(first: int, piece: Slice, prompt: Prompt) -> list[tuple[int, Tensor]]:
    """The images that lie in a slice, whole or in part, with the row where each begins."""
    found = []
    for picture in prompt.pictures:
        start, end = max(piece.start, picture.start), min(piece.end, picture.end)
        if start < end:
            rows = picture.embeddings[:, start - picture.start : end - picture.start]
            found.append((first + start - piece.start, rows))
    return found
