"""A file: address in, the bytes of a file below the opened folder out."""

import os
import stat
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import unquote

import httpx


class FileUnavailable(Exception):
    """Nothing that may be read is at the address; why is not told, nor whether a file exists."""


class FileTooLarge(Exception):
    """The file has more bytes than an image may have."""


def read_below(folder: Path, address: str, max_bytes: int) -> bytes:
    """Read a regular file that lies below `folder` without any link on its way. Blocks.

    Each part of the path is opened inside the one before, so what is checked is what is read,
    even where somebody moves things meanwhile.

    Raises:
        FileUnavailable: the address is of another place, or no such file can be read.
        FileTooLarge: it is longer than `max_bytes`.
    """
    parts = _parts_below(folder, address)
    try:
        with ExitStack() as open_files:
            return _read(folder, parts, max_bytes, open_files)
    except OSError as error:
        raise FileUnavailable from error


def _parts_below(folder: Path, address: str) -> tuple[str, ...]:
    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, UnicodeError, ValueError) as error:
        raise FileUnavailable from error
    path = unquote(url.raw_path.partition(b"?")[0], errors="surrogateescape")
    names = tuple(path.split("/")[1:])
    start = folder.parts[1:]
    below = names[len(start) :]
    if url.host not in ("", "localhost") or names[: len(start)] != start or not below:
        raise FileUnavailable
    if any(name in ("", ".", "..") or "\0" in name for name in below):
        raise FileUnavailable
    return below


def _read(folder: Path, parts: tuple[str, ...], max_bytes: int, open_files: ExitStack) -> bytes:
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    open_files.callback(os.close, at)
    for name in parts[:-1]:
        at = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
        open_files.callback(os.close, at)
    # Without O_NONBLOCK a named pipe would hold the thread until somebody writes to it.
    file = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    open_files.callback(os.close, file)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise FileUnavailable
    with os.fdopen(file, "rb", closefd=False) as reader:
        data = reader.read(max_bytes + 1)  # not by its size: it may grow meanwhile
    if len(data) > max_bytes:
        raise FileTooLarge
    return data
