"""Sequences that follow grammars: whether each may choose a token, and from which."""

import time

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from workers.language.grammar import Grammars, Outlook
from workers.language.sequence import Sequence

LATE_SECONDS = 0.001  # how long a step that has its logits waits for grammars

# [256, 8]: what a byte's bits, lowest first, add to the logits of eight tokens.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little")
_FORBIDDEN = np.where(_BITS, 0.0, -np.inf).astype(np.float32)


def hold_late(sequences: tuple[Sequence, ...], grammars: Grammars) -> None:
    """Hold those whose grammar does not tell in time what may follow, or that nothing may."""
    guided = [(each, each.follower) for each in sequences if each.follower is not None]
    limit = time.monotonic() + LATE_SECONDS
    while not all(follower.is_ready for _, follower in guided):
        left = limit - time.monotonic()
        if left <= 0:
            break
        grammars.wait(left)
    for sequence, follower in guided:
        sequence.is_held = not follower.may_choose


def forbid(logits: Tensor, sequences: tuple[Sequence, ...]) -> None:
    """Set what may not follow to minus infinity in float32 [rows, vocab], in place.

    A token that stops the answer may always follow where the answer is whole; elsewhere it may if
    it is text that may follow.
    """
    guided = [
        (row, each.follower.outlook)
        for row, each in enumerate(sequences)
        if each.follower is not None
    ]
    if not guided:
        return
    packed, stops = [], []
    for place, (row, outlook) in enumerate(guided):
        assert isinstance(outlook, Outlook), "nothing may follow"
        packed.append(outlook.allowed)
        if outlook.may_end:
            ids = sequences[row].sampling.stop_token_ids
            stops += [(place, token_id) for token_id in ids if token_id < logits.shape[-1]]
    table = torch.from_numpy(_FORBIDDEN).to(logits.device)
    bits = torch.from_numpy(np.stack(packed)).to(logits.device)
    change = embedding(bits.int(), table).flatten(1)[:, : logits.shape[-1]]
    if stops:
        change[tuple(torch.tensor(stops, device=logits.device).T)] = 0.0
    index = torch.tensor([row for row, _ in guided], device=logits.device)
    logits.index_add_(0, index, change)
