"""Processes that read schemas: there when they are needed, never in the way, gone at the end."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import BadRequest
from gateway.structured import checking
from gateway.structured.checking import GrammarChecks
from gateway.structured.json_grammar import SchemaRule, schema_rule
from tests.gateway.structured.test_checker import LASTS, OVERFLOWS

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@asynccontextmanager
async def checks() -> AsyncIterator[GrammarChecks]:
    made = GrammarChecks()
    yield made
    await made.close()


def rules(*schemas: dict[str, Any]) -> tuple[SchemaRule, ...]:
    return tuple(schema_rule(each, f"tools[{place}]") for place, each in enumerate(schemas))


def numbered(number: int) -> tuple[SchemaRule, ...]:
    """A schema that was not seen before."""
    return rules({"const": number})


def children(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        yield from map(int, (task / "children").read_text().split())


def wait_for_end_of_others(known: set[int]) -> None:
    while set(children(os.getpid())) - known:
        time.sleep(0.01)


async def test_a_refusal_names_the_field_of_the_schema() -> None:
    async with checks() as each:
        with pytest.raises(BadRequest, match="colour") as caught:
            await each.check(rules({"type": "null"}, {"type": "colour"}))
        assert (caught.value.param, caught.value.code) == ("tools[1]", "invalid_schema")


async def test_nothing_is_started_where_there_is_nothing_to_read() -> None:
    before = set(children(os.getpid()))
    async with checks() as each:
        await each.check(())
        assert set(children(os.getpid())) == before


async def test_a_schema_is_read_once() -> None:
    async with checks() as each:
        for schema in ({"type": "null"}, {"type": "colour"}):
            with pytest.MonkeyPatch.context() as patch:
                for _ in range(2):
                    try:
                        await each.check(rules(schema))
                    except BadRequest as error:
                        assert "colour" in error.message  # noqa: PT017 - the other is taken
                    patch.setattr(each, "_ask", None)


async def test_verdicts_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "MAX_VERDICTS", 3)
    async with checks() as each:
        for number in range(9):
            await each.check(numbered(number))
            await each.check(numbered(0))
        assert len(each._verdicts) == 3


async def test_who_comes_while_others_read_long_does_not_wait_for_the_first() -> None:
    async with checks() as each:
        long = asyncio.create_task(each.check(rules(LASTS)))
        await each.check(numbered(1))
        assert not long.done()
        with pytest.raises(BadRequest, match="more than 2 s"):
            await long


async def test_the_event_loop_goes_on_while_a_schema_is_read() -> None:
    async with checks() as each:
        await each.check(numbered(1))
        reading = asyncio.create_task(each.check(rules(OVERFLOWS)))
        turns = 0
        while not reading.done():
            await asyncio.sleep(0)
            turns += 1
        with pytest.raises(BadRequest, match="too deep"):
            await reading
        assert turns > 100


async def test_a_caller_who_leaves_takes_the_reading_along() -> None:
    before = set(children(os.getpid()))
    async with checks() as each:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(each.check(rules(LASTS)), 1)
        await asyncio.to_thread(wait_for_end_of_others, before)
        await each.check(numbered(1))


async def test_a_process_that_was_killed_is_replaced() -> None:
    before = set(children(os.getpid()))
    async with checks() as each:
        await each.check(numbered(1))
        (process,) = set(children(os.getpid())) - before
        os.kill(process, signal.SIGKILL)
        await each.check(numbered(2))
    assert set(children(os.getpid())) <= before
