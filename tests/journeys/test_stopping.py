"""What signals reach, and what a stop does to requests that have got nowhere yet."""

import os
import socket

import pytest

from tests.journeys.server import Server, running

pytestmark = pytest.mark.slow


def test_a_signal_to_the_terminals_group_reaches_the_gateway_alone(demo: Server) -> None:
    group = os.getpgid(demo.process.pid)
    assert all(os.getpgid(pid) != group for pid in demo.workers())


def test_a_body_that_never_ends_does_not_outlast_the_drain() -> None:
    with running(drain_seconds="0.3") as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{"
            )
            server.wait_for("fovea_requests_running", 1)
            assert server.stop() == 0
            assert b" 503 " in connection.recv(100)
        assert not any("Traceback" in line for line in server.lines)
