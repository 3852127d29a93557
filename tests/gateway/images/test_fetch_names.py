"""Host names that no library can put into letters."""

import socket

import pytest

from config.settings import ImageSettings
from gateway.errors import ImageRejected
from gateway.images.fetch import Fetcher
from gateway.prompts.prompt import ImageRef


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
@pytest.mark.parametrize("host", ["xn--", "xn--ls8h.test", "xn--a.test"])
async def test_a_name_that_stands_for_no_letters_is_told_as_it_was_sent(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_nothing(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", find_nothing)
    fetcher = Fetcher(ImageSettings())
    with pytest.raises(ImageRejected, match=host) as caught:
        await fetcher.fetch(ImageRef(0, "image_url", f"http://{host}/a.png"))
    await fetcher.close()
    assert caught.value.code == "fetch_failed"
