"""Clients that are slow to send or to read; they hold what they hold only for a time."""

import asyncio
import time
from typing import Any, cast
from unittest import mock

import orjson
import pytest
from starlette.types import Message

from config.settings import ServerSettings, Settings
from gateway import exchange
from gateway.edge.admit import SMALL_BYTES, Admission
from gateway.errors import BadRequest
from gateway.generation import Generation
from gateway.images.decode_pool import DecodePool
from gateway.observe.metrics import Metrics
from gateway.prompts.prompt import Prompt
from gateway.routes.chat import ChatTalk
from gateway.services import Services
from gateway.talk import Desk

pytestmark = pytest.mark.anyio


def services(**server: Any) -> Services:
    """Services of a gateway that never gets past the body."""
    settings = Settings(server=ServerSettings(**server))
    missing = cast("Any", None)
    return Services(
        settings=settings,
        checkpoint=missing,
        served_model_name="m",
        backend="cpu",
        metrics=Metrics(),
        admission=Admission(settings.server),
        fetcher=missing,
        decode_pool=missing,
        pool=missing,
        dispatcher=missing,
        store=missing,
        encoder=missing,
    )


class Client:
    """The far end of one exchange: sends the chunks it is given, keeps what it is told."""

    def __init__(
        self, *chunks: bytes, whole: bool = False, leaves: bool = False, reads: bool = True
    ) -> None:
        self.heard: list[Message] = []
        self._leaves, self._reads = leaves, reads
        self._messages: list[Message] = [
            {"type": "http.request", "body": chunk, "more_body": not whole} for chunk in chunks
        ]

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop(0)
        if not self._leaves:
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if not self._reads:
            await asyncio.Event().wait()
        self.heard.append(message)

    async def talk_to(self, gateway: Services) -> None:
        scope = {"type": "http", "method": "POST", "headers": [], "state": {"request_id": "r"}}
        async with asyncio.timeout(5):
            desk = Desk(gateway)
            await Generation(desk, ChatTalk(desk), scope, self.receive, self.send).run()

    @property
    def outcome(self) -> tuple[int, str]:
        """Status and error code of the answer."""
        return self.heard[0]["status"], orjson.loads(self.heard[1]["body"])["error"]["code"]


async def test_a_body_that_does_not_arrive_in_time_is_408_and_frees_its_place() -> None:
    gateway = services(body_seconds=0.05)
    client = Client(b'{"model":')
    await client.talk_to(gateway)
    assert client.outcome == (408, "body_timeout")
    assert (b"connection", b"close") in client.heard[0]["headers"]
    assert (gateway.admission.num_running, gateway.admission.num_bytes) == (0, 0)


async def test_bodies_that_arrive_count_among_the_bytes_in_flight() -> None:
    gateway = services(max_bytes_in_flight=1 << 20)
    slow = asyncio.create_task(Client(b"x" * 900_000).talk_to(gateway))
    await asyncio.sleep(0.01)
    assert gateway.admission.num_bytes == 900_000 - SMALL_BYTES
    second = Client(b"y" * 300_000)
    await second.talk_to(gateway)
    assert second.outcome == (429, "overloaded")
    assert gateway.admission.num_bytes == 900_000 - SMALL_BYTES
    slow.cancel()
    await asyncio.wait({slow})
    assert (gateway.admission.num_running, gateway.admission.num_bytes) == (0, 0)


async def test_large_bodies_are_parsed_a_few_at_a_time() -> None:
    gateway = services()
    gateway.decode_pool = DecodePool(2)
    now, most = 0, 0

    def count(_: bytes) -> Prompt:
        nonlocal now, most
        now += 1
        most = max(most, now)
        time.sleep(0.01)
        now -= 1
        raise BadRequest("counted")

    async def send_one() -> None:
        client = Client(b"x" * 100_000, whole=True)
        with mock.patch.object(ChatTalk, "read", staticmethod(count)):
            await client.talk_to(gateway)
        assert client.outcome == (400, "invalid_value")

    await asyncio.gather(*(send_one() for _ in range(8)))
    assert most == 2


async def test_a_client_that_leaves_in_its_body_is_told_nothing() -> None:
    gateway = services()
    client = Client(b'{"model":', leaves=True)
    await client.talk_to(gateway)
    assert client.heard == []
    assert gateway.admission.num_bytes == 0


async def test_a_request_that_is_cut_short_in_its_body_is_told_so() -> None:
    gateway = services()
    client = Client(b'{"model":')
    talk = asyncio.create_task(client.talk_to(gateway))
    await asyncio.sleep(0.01)
    gateway.cut_short()
    await talk
    assert client.outcome == (503, "not_ready")
    assert gateway.admission.num_running == 0
    assert not gateway.running


async def test_an_error_that_nobody_reads_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(exchange, "_LAST_WORDS_SECONDS", 0.05)
    await Client(b"x" * 2000, reads=False).talk_to(services(max_body_bytes=1024))


async def test_a_panic_of_a_library_is_a_fault_with_a_body_and_frees_the_place() -> None:
    class PanicException(BaseException):
        """As the bindings of Rust make it."""

    def panic(_: bytes) -> Prompt:
        raise PanicException("index out of bounds")

    gateway, client = services(), Client(b"{}", whole=True)
    with mock.patch.object(ChatTalk, "read", staticmethod(panic)):
        await client.talk_to(gateway)
    assert client.outcome == (500, "internal_error")
    assert gateway.admission.num_running == 0
