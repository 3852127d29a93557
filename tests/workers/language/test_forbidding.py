"""Logits without what grammars forbid, against plain loops over bits; and who is held."""

import random

import numpy as np
import torch

from tests.workers.language.wishes import make_sequence, make_wish
from workers.language.forbidding import forbid, hold_late
from workers.language.grammar import Fault, Follower, Grammars, Outlook
from workers.language.sequence import Sequence
from workers.messages import Vocabulary

NUM_TOKENS = 45  # fills no whole number of bytes
STOPS = (7, 44, 99)  # the last has no logit


class Known(Follower):
    """A follower that has its answer already, or never gets one."""

    def __init__(self, outlook: Outlook | Fault | None) -> None:
        self._known = outlook

    @property
    def is_ready(self) -> bool:
        return self._known is not None

    @property
    def outlook(self) -> Outlook | Fault:
        assert self._known is not None
        return self._known


def outlook_of(allowed: set[int], may_end: bool) -> Outlook:
    bits = np.isin(np.arange(48), list(allowed))
    return Outlook(np.packbits(bits, bitorder="little"), may_end)


def sequence_of(outlook: Outlook | Fault | None) -> Sequence:
    sequence = make_sequence([1], make_wish(stop_token_ids=STOPS))
    sequence.follower = Known(outlook)
    return sequence


def test_what_may_not_follow_is_minus_infinity_and_all_else_stays_as_it_is() -> None:
    chance = random.Random(5)
    allowed = [set(chance.sample(range(NUM_TOKENS), 11)) for _ in range(2)]
    sequences = (
        sequence_of(outlook_of(allowed[0], may_end=False)),
        make_sequence([1], make_wish()),
        sequence_of(outlook_of(allowed[1], may_end=True)),
    )
    logits = torch.randn(3, NUM_TOKENS, generator=torch.Generator().manual_seed(1))
    before = logits.clone()
    forbid(logits, sequences)
    rows = [allowed[0], set(range(NUM_TOKENS)), allowed[1] | set(STOPS)]
    for row, kept in enumerate(rows):
        for token_id in range(NUM_TOKENS):
            expected = float(before[row, token_id]) if token_id in kept else -float("inf")
            assert float(logits[row, token_id]) == expected


def test_who_cannot_choose_is_held_and_nobody_else() -> None:
    grammars = Grammars(Vocabulary((), ()), 8)
    outlooks: list[tuple[Outlook | Fault | None, bool]] = [
        (outlook_of({3}, may_end=False), False),
        (outlook_of({3}, may_end=True), False),
        (outlook_of(set(), may_end=True), True),  # it is over
        (Fault("bad_input", "no"), True),
        (None, True),
    ]
    sequences = tuple(sequence_of(outlook) for outlook, _ in outlooks)
    plain = make_sequence([1], make_wish())
    hold_late((*sequences, plain), grammars)
    assert [each.is_held for each in sequences] == [held for _, held in outlooks]
    assert not plain.is_held
