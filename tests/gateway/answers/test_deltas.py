"""Events of an answer are counted, named and joined as OpenAI does."""

from gateway.answers.deltas import Argued, CallBook, Called, Delta, Said, Thought, join
from workers.families.answers import (
    CallArguments,
    CallBegun,
    CallEnded,
    Event,
    Thoughts,
    Words,
)

EVENTS: list[Event] = [
    Thoughts("Hm"),
    Words("a", 0),
    CallBegun("f", None),
    CallArguments("{"),
    CallArguments("}"),
    CallEnded(),
    CallBegun("g", "functions.g:1"),
    CallEnded(),
    Words("b", 9),
]


def test_calls_are_counted_and_get_an_id_where_they_have_none() -> None:
    book = CallBook(None)
    deltas = book.enter(EVENTS[:5]) + book.enter(EVENTS[5:])
    first, _ = [delta for delta in deltas if isinstance(delta, Called)]
    assert first.id.startswith("call_")
    assert len(first.id) == 29
    assert deltas == [
        Thought("Hm"), Said("a"), Called(0, first.id, "f"), Argued(0, "{"), Argued(0, "}"),
        Called(1, "functions.g:1", "g"), Said("b"),
    ]  # fmt: skip
    assert (book.num_calls, book.is_full) == (2, False)
    other = CallBook(None).enter(EVENTS[2:3])
    assert other != [first]


def test_nothing_comes_after_the_last_call_that_is_wanted() -> None:
    book = CallBook(1)
    assert len(book.enter(EVENTS[:5])) == 5
    assert not book.is_full
    assert book.enter(EVENTS[5:]) == []
    assert (book.num_calls, book.is_full) == (1, True)
    assert book.enter(EVENTS) == []


def test_neighbours_of_a_kind_are_one() -> None:
    deltas: list[Delta] = [
        Said("a"), Said("b"), Thought("c"), Thought("d"), Called(0, "i", "f"), Argued(0, "{"),
        Argued(0, "}"), Called(1, "j", "f"), Argued(1, "{"), Said("e"),
    ]  # fmt: skip
    assert join(deltas) == [
        Said("ab"), Thought("cd"), Called(0, "i", "f"), Argued(0, "{}"), Called(1, "j", "f"),
        Argued(1, "{"), Said("e"),
    ]  # fmt: skip
    assert join([]) == []
