"""What can go wrong before the first worker starts is said in one sentence."""

import logging
import socket
from pathlib import Path

import pytest

from config.settings import ServerSettings, Settings, WorkerSettings
from gateway.edge.sockets import StartError, listen, url_of
from gateway.server import Gateway


def test_a_port_is_taken_from_when_it_is_bound() -> None:
    with listen(ServerSettings(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(StartError, match=f"port {port}.*FOVEA_PORT"):
            listen(ServerSettings(port=port))


@pytest.mark.parametrize(
    ("host", "start"), [("127.0.0.1", "http://127.0.0.1:"), ("::1", "http://[::1]:")]
)
def test_the_address_that_is_printed_can_be_used(host: str, start: str) -> None:
    if ":" in host and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    with listen(ServerSettings(host=host, port=0)) as listener:
        port = listener.getsockname()[1]
        assert url_of(listener) == f"{start}{port}"


@pytest.mark.anyio
@pytest.mark.parametrize("num_bytes", [1 << 62, 10**30])
async def test_more_shared_memory_than_there_can_be_is_refused_by_name(num_bytes: int) -> None:
    settings = Settings(
        workers=WorkerSettings(workers="cpu:vision+language", arena_bytes=num_bytes)
    )
    with (
        listen(ServerSettings(port=0)) as listener,
        pytest.raises(StartError, match=f"FOVEA_ARENA_BYTES={num_bytes}"),
    ):
        Gateway(settings, listener, begun=0.0)


def test_keys_that_cannot_be_read_stop_the_start_before_any_worker(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("nonsense")
    settings = Settings(server=ServerSettings(port=0, api_keys_file=str(file)))
    with (
        listen(settings.server) as listener,
        pytest.raises(StartError, match=f"FOVEA_API_KEYS_FILE={file}: line 1: "),
    ):
        Gateway(settings, listener, begun=0.0)


@pytest.mark.anyio
@pytest.mark.parametrize(("host", "num_warnings"), [("127.0.0.1", 0), ("0.0.0.0", 1)])
async def test_a_door_that_is_open_to_all_is_told(
    caplog: pytest.LogCaptureFixture, host: str, num_warnings: int
) -> None:
    server = ServerSettings(port=0, host=host)
    with caplog.at_level(logging.WARNING), listen(server) as listener:
        Gateway(Settings(server=server), listener, begun=0.0)
    assert caplog.text.count("whoever reaches") == num_warnings
