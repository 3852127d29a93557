"""What images left in engines is remembered for the latest, until the engine's process ends."""

from gateway.encoding.traces import Trace, TraceBook


def test_the_images_shown_latest_are_remembered() -> None:
    book = TraceBook(max_traces=2)
    for digest in (b"a", b"b", b"a", b"c"):
        book.learn(digest, Trace(b"identity of " + digest, 0))
    assert book.find(b"a") == Trace(b"identity of a", 0)
    assert book.find(b"b") is None
    assert book.find(b"c") is not None


def test_the_engine_that_saw_an_image_last_counts() -> None:
    book = TraceBook()
    for digest, engine in ((b"a", 0), (b"b", 0), (b"a", 1)):
        book.learn(digest, Trace(b"", engine))
    book.forget(0)
    assert book.find(b"a") == Trace(b"", 1)
    assert book.find(b"b") is None


def test_nothing_is_remembered_where_engines_keep_nothing() -> None:
    book = TraceBook(max_traces=0)
    book.learn(b"a", Trace(b"", 0))
    assert book.find(b"a") is None
