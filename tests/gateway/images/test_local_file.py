"""Reading below one folder: every way out of it beside a file that is there."""

import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from config.settings import ImageSettings
from gateway.errors import ImageRejected, ImageTooLarge
from gateway.images.fetch import Fetcher
from gateway.images.local_file import FileTooLarge, FileUnavailable, read_below
from gateway.prompts.prompt import ImageRef
from tests.pictures import encoded, noise

LIMIT = 4000
TLS = ssl.create_default_context()
PICTURE = encoded(noise(41, (23, 19)))
SECRET = b"secret"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a picture, one more further down, and a secret beside it."""
    media = tmp_path / "media"
    (media / "deep").mkdir(parents=True)
    (media / "a.png").write_bytes(PICTURE)
    (media / "deep" / "b c?ü.png").write_bytes(PICTURE[::-1])
    (tmp_path / "secret.png").write_bytes(SECRET)
    (tmp_path / "media2").mkdir()
    (tmp_path / "media2" / "a.png").write_bytes(SECRET)
    return media


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("file://{}/a.png", PICTURE),
        ("FILE://localhost{}/a.png", PICTURE),
        ("file:{}/a.png", PICTURE),
        ("file://{}/deep/../a.png", PICTURE),
        ("file://{}/deep/b%20c%3F%C3%BC.png", PICTURE[::-1]),
    ],
)
def test_a_file_below_the_folder_is_read(folder: Path, form: str, expected: bytes) -> None:
    assert read_below(folder, form.format(folder), LIMIT) == expected


@pytest.mark.parametrize(
    "form",
    [
        "file://{}/../secret.png",
        "file://{}/%2e%2e/secret.png",
        "file://{}/..%2fsecret.png",
        "file://{}/deep/%2e%2e/%2e%2e/secret.png",
        "file://{}2/a.png",
        "file://{}",
        "file://{}/",
        "file://{}/deep",
        "file://{}/a.png/",
        "file://{}//a.png",
        "file:////{}/a.png",
        "file://{}/none.png",
        "file://{}/none/a.png",
        "file://{}/a.png/b.png",
        "file://{}/a.png%00",
        "file://host{}/a.png",
        "file://127.0.0.1{}/a.png",
        "file:///etc/hostname",
        "file:a.png",
        "file:///",
        "file:",
        "file://[::1",
        "file://{}/%ff%fe.png",
        "file://{}/" + "n" * 300,
    ],
)
def test_anything_else_is_not(folder: Path, form: str) -> None:
    with pytest.raises(FileUnavailable):
        read_below(folder, form.format(folder), LIMIT)


def _link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(path.name)  # in the current folder: the path of a socket has to be short


@pytest.mark.parametrize(
    "make",
    [_link_to("../secret.png"), _link_to("a.png"), _link_to("/dev/zero"), os.mkfifo, _socket],
    ids=["link out", "link inside", "link to a device", "pipe", "socket"],
)
def test_what_is_no_regular_file_is_not_read(
    folder: Path, make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    make(folder / "odd.png")
    assert os.path.lexists(folder / "odd.png")
    with pytest.raises(FileUnavailable):
        read_below(folder, f"file://{folder}/odd.png", LIMIT)


@pytest.mark.parametrize("target", ["..", "../media2", "deep"])
def test_no_folder_is_entered_through_a_link(folder: Path, target: str) -> None:
    (folder / "way").symlink_to(target)
    for name in ("secret.png", "a.png", "b%20c%3F%C3%BC.png"):
        with pytest.raises(FileUnavailable):
            read_below(folder, f"file://{folder}/way/{name}", LIMIT)


def test_a_file_of_exactly_the_limit_is_read_and_no_longer_one(folder: Path) -> None:
    (folder / "a.png").write_bytes(bytes(LIMIT))
    assert len(read_below(folder, f"file://{folder}/a.png", LIMIT)) == LIMIT
    (folder / "a.png").write_bytes(bytes(LIMIT + 1))
    with pytest.raises(FileTooLarge):
        read_below(folder, f"file://{folder}/a.png", LIMIT)


def test_no_file_stays_open(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in ("deep/b%20c%3F%C3%BC.png", "deep", "deep/none", "a.png"):
        try:
            read_below(folder, f"file://{folder}/{name}", LIMIT)
        except FileUnavailable:
            continue
    assert len(os.listdir("/proc/self/fd")) == before


async def _fetch(address: str, **limits: object) -> bytes:
    fetcher = Fetcher(ImageSettings.model_validate(limits), TLS)
    try:
        return (await fetcher.fetch(ImageRef(1, "image_url", address))).data
    finally:
        await fetcher.close()


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_refusals_of_files_that_exist_and_that_do_not_are_the_same(folder: Path) -> None:
    media = str(folder)
    assert await _fetch(f"file://{media}/a.png", media_folder=media) == PICTURE
    messages = set()
    for path in ("/etc/hostname", "/no/such/file", f"{media}/none.png", f"{media}/deep"):
        with pytest.raises(ImageRejected) as caught:
            await _fetch(f"file://{path}", media_folder=media)
        assert (caught.value.code, caught.value.stage) == ("file_unavailable", "fetch")
        messages.add(caught.value.message)
    assert len(messages) == 1


@pytest.mark.anyio
async def test_no_file_is_read_unless_a_folder_is_opened(folder: Path) -> None:
    with pytest.raises(ImageRejected) as caught:
        await _fetch(f"file://{folder}/a.png")
    assert caught.value.code == "unsupported_scheme"


@pytest.mark.anyio
async def test_a_file_over_the_limit_is_an_image_too_large(folder: Path) -> None:
    (folder / "a.png").write_bytes(bytes(5000))
    with pytest.raises(ImageTooLarge, match="4000"):
        await _fetch(f"file://{folder}/a.png", media_folder=str(folder), max_image_bytes=4000)
