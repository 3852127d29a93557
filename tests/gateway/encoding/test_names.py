"""A caller's name means what that caller showed last, and nothing to others."""

from gateway.encoding.names import NameBook, Shown
from tests.plans import make_plan

RED = Shown(b"red", make_plan((30, 40)), "file")
BLUE = Shown(b"blue", make_plan((50, 20)), "file")


def test_a_name_means_what_was_shown_last() -> None:
    book = NameBook()
    assert book.find(b"", "cat") is None
    book.learn(b"", "cat", RED, 0)
    assert book.find(b"", "cat") == RED
    book.learn(b"", "cat", BLUE, 0)
    assert book.find(b"", "cat") == BLUE


def test_names_mean_nothing_to_other_tenants() -> None:
    book = NameBook()
    book.learn(b"one", "cat", RED, 0)
    book.learn(b"two", "cat", BLUE, 0)
    assert book.find(b"one", "cat") == RED
    assert book.find(b"three", "cat") is None


def test_the_names_used_latest_are_remembered() -> None:
    book = NameBook(max_names=2)
    book.learn(b"", "a", RED, 0)
    book.learn(b"", "b", BLUE, 0)
    book.find(b"", "a")
    book.learn(b"", "c", BLUE, 0)
    assert [name for name in "abc" if book.find(b"", name)] == ["a", "c"]


def test_the_request_that_came_last_decides_whenever_it_ends() -> None:
    book = NameBook()
    book.learn(b"", "cat", BLUE, 2)
    book.learn(b"", "cat", RED, 1)
    assert book.find(b"", "cat") == BLUE
    book.learn(b"", "cat", RED, 2)  # a later image of the same request
    assert book.find(b"", "cat") == RED
