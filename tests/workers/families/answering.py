"""Answers cut into atoms in any way, and what a reader makes of them, told without the cuts."""

import itertools
import re
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from workers.families.answers import (
    AnswerForm,
    Atom,
    CallArguments,
    CallBegun,
    CallEnded,
    Event,
    Functions,
    Thoughts,
    Words,
)

Told = list[tuple[str, ...]]


def atoms(
    text: str, form: AnswerForm, cuts: Sequence[int] = (), with_calls: bool = True
) -> list[Atom]:
    """The text as atoms: its markers whole, all else cut at these places as well."""
    markers = form.markers(with_calls)
    pattern = "|".join(map(re.escape, sorted(markers))) or "(?!)"
    found: list[Atom] = []
    place = 0
    for match in [*re.finditer(pattern, text), None]:
        end = len(text) if match is None else match.start()
        edges = [place, *sorted(cut for cut in set(cuts) if place < cut < end), end]
        found += [Atom(text[a:b], a) for a, b in itertools.pairwise(edges) if a < b]
        if match is not None:
            found.append(Atom(match.group(), end, is_marker=True))
            place = match.end()
    return found


def events(
    text: str,
    form: AnswerForm,
    cuts: Sequence[int] = (),
    *,
    in_thought: bool = False,
    with_calls: bool = True,
    functions: Functions = MappingProxyType({}),
) -> list[Event]:
    """All that a reader gives of an answer."""
    reader = form.reader(in_thought, functions if with_calls else None)
    given = [each for atom in atoms(text, form, cuts, with_calls) for each in reader.read(atom)]
    return given + list(reader.finish())


def told(given: Sequence[Event]) -> Told:
    """Events with neighbours of one kind joined."""
    joined: Told = []
    for event in given:
        match event:
            case Words(text=text):
                entry: tuple[str, ...] = ("words", text)
            case Thoughts(text=text):
                entry = ("thoughts", text)
            case CallBegun(name=name, id=own):
                entry = ("call", name) if own is None else ("call", name, own)
            case CallArguments(text=text):
                entry = ("arguments", text)
            case CallEnded():
                entry = ("end",)
        is_text = entry[0] in ("words", "thoughts", "arguments")
        if is_text and joined and joined[-1][0] == entry[0]:
            joined[-1] = (entry[0], joined[-1][1] + entry[1])
        else:
            joined.append(entry)
    return joined


def read(text: str, form: AnswerForm, **options: Any) -> Told:
    """What is told of an answer that comes a character at a time."""
    return told(events(text, form, range(len(text)), **options))


def check_places(text: str, given: Sequence[Event]) -> None:
    """Words stand in the answer where they say, in order."""
    end = 0
    for event in given:
        if isinstance(event, Words):
            assert event.start >= end
            end = event.start + len(event.text)
            assert text[event.start : end] == event.text


def answers(*pieces: str) -> st.SearchStrategy[tuple[str, list[int]]]:
    """Texts made of these pieces and of others, with places to cut them at."""
    piece = st.one_of(st.sampled_from(pieces), st.text(max_size=6))
    text = st.lists(piece, max_size=14).map("".join)
    return text.flatmap(
        lambda each: st.tuples(st.just(each), st.lists(st.integers(0, len(each)), max_size=20))
    )
