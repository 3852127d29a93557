"""Panics of libraries in Rust, which are no `Exception` and which no code expects."""

from collections.abc import Iterator
from contextlib import contextmanager

_NAME = "PanicException"  # no module has it, so that it cannot be imported


class LibraryPanic(Exception):
    """A library met something that it took to be impossible; it goes on serving others."""


@contextmanager
def name_panics() -> Iterator[None]:
    """Turn a panic into `LibraryPanic`, which ends one request like any fault, and no task."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ == _NAME:
            raise LibraryPanic(str(error)) from error
        raise
