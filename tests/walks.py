"""Random ways through grammars, as a model without sense would go them."""

import random
from collections.abc import Container, Sequence

import numpy as np
from tokenizers import Tokenizer

from gateway.answers.spelling import Speller
from workers.language.grammar import Fault, Follower, Grammars, Outlook
from workers.messages import Vocabulary

MOST_TOKENS = 2000
_WAIT_SECONDS = 30.0


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    speller = Speller(tokenizer)
    ids = range(tokenizer.get_vocab_size())
    return Vocabulary(tuple(map(speller.spell, ids)), tuple(tokenizer.get_added_tokens_decoder()))


def settled(grammars: Grammars, follower: Follower) -> Outlook | Fault:
    """What a follower says once it is ready."""
    while not follower.is_ready:
        grammars.wait(_WAIT_SECONDS)
    return follower.outlook


def ids_of(outlook: Outlook | Fault) -> list[int]:
    """The tokens that may follow."""
    assert isinstance(outlook, Outlook), outlook
    found: list[int] = np.flatnonzero(np.unpackbits(outlook.allowed, bitorder="little")).tolist()
    return found


def follow(grammars: Grammars, text: str, token_ids: Sequence[int]) -> Outlook | Fault:
    """What may follow after these tokens, each of which has to be allowed."""
    follower = grammars.begin(text)
    for token_id in token_ids:
        assert token_id in ids_of(settled(grammars, follower)), token_id
        follower.advance(token_id)
    return settled(grammars, follower)


def walk(
    grammars: Grammars, text: str, seed: int, likely: Container[int] = frozenset()
) -> list[int]:
    """Tokens of one whole answer, each drawn by chance from those that may follow."""
    chance = random.Random(seed)
    follower = grammars.begin(text)
    walked: list[int] = []
    while len(walked) < MOST_TOKENS:
        outlook = settled(grammars, follower)
        allowed = ids_of(outlook)
        assert isinstance(outlook, Outlook)
        if outlook.may_end and (not allowed or chance.random() < 0.5):
            return walked
        wished = [token_id for token_id in allowed if token_id in likely]
        walked.append(chance.choice(wished if wished and chance.random() < 0.2 else allowed))
        follower.advance(walked[-1])
    raise AssertionError("the answer never came to an end")
