"""Memory of the gateway after bodies that need much of it: it goes back, and does not add up."""

import json
import re
import time
from pathlib import Path

import httpx
import pytest

from tests.journeys.server import Server, running

pytestmark = pytest.mark.slow

MEBIBYTE = 1 << 20
MAX_KEPT_MEBIBYTES = 32  # above what it holds at first: what is kept of the heap, and some slack
MAX_GROWTH_MEBIBYTES = 8  # from one flood to the next
IDLE_SECONDS = 12.0  # in which the gateway looks at least twice


def held(server: Server) -> float:
    """Mebibytes that are the gateway's own, once it had time to give back."""
    time.sleep(IDLE_SECONDS)
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def ask(server: Server, num_mebibytes: int) -> None:
    """A prompt of so many mebibytes, which is too long."""
    messages = [{"role": "user", "content": "word " * (num_mebibytes * MEBIBYTE // 5)}]
    body = json.dumps({"model": server.model, "messages": messages})
    answer = httpx.post(f"{server.url}/v1/chat/completions", content=body, timeout=60)
    assert answer.json()["error"]["code"] == "context_length_exceeded"


def flood(server: Server) -> None:
    for num_mebibytes in (1, 28, 14, 7, 21, 3):
        ask(server, num_mebibytes)


def test_large_bodies_leave_little_and_as_many_again_leave_no_more() -> None:
    with running() as server:
        ask(server, 1)
        before = held(server)
        flood(server)
        once = held(server)
        flood(server)
        twice = held(server)
    assert once - before < MAX_KEPT_MEBIBYTES
    assert twice - once < MAX_GROWTH_MEBIBYTES
