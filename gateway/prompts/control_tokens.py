"""Tokens that give a prompt its structure, and how to find their spellings in a text."""

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ControlTokens:
    """Tokens that some text must never become. `pattern` matches their spellings, longest first."""

    ids: frozenset[int]
    pattern: re.Pattern[str]
    prefixes: tuple[str, ...]  # every proper, non-empty beginning of a spelling


def control_tokens(spellings: Mapping[int, str]) -> ControlTokens:
    """From each token's id and its spelling."""
    longest_first = sorted(spellings.values(), key=len, reverse=True)
    return ControlTokens(
        ids=frozenset(spellings),
        pattern=re.compile("|".join(map(re.escape, longest_first))),
        prefixes=tuple({text[:length] for text in longest_first for length in range(1, len(text))}),
    )
