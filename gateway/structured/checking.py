"""Schemas of a request in, a refusal of what the library cannot take out; other processes read."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from gateway.errors import NotReady
from gateway.structured.checker import Verdict
from gateway.structured.json_grammar import SchemaRule, refusal

NUM_CHECKERS = 2  # requests whose schemas are read at the same time; others wait
MAX_VERDICTS = 4096  # kept, of a hundred bytes or two
# What this process finds where, the checker finds there, and nothing beside it.
_COMMAND = (
    "import sys; sys.path[:] = sys.argv[1:]; from gateway.structured.checker import main; main()"
)


class GrammarChecks:
    """Has schemas read, each list once. Owned by the event loop.

    Processes start when they are needed, and end with this one or by `close`.
    """

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(NUM_CHECKERS)
        self._idle: list[Process] = []
        self._verdicts: OrderedDict[bytes, Verdict] = OrderedDict()

    async def check(self, schemas: Sequence[SchemaRule]) -> None:
        """Return if a grammar can be made of the schemas.

        Raises:
            BadRequest: the library cannot take one, or not with so little time and memory.
            NotReady: whatever reads schemas was ended.
        """
        if not schemas:
            return
        verdict = await self._verdict(json.dumps([rule.text for rule in schemas]).encode())
        if not verdict.reason:
            return
        if verdict.place < len(schemas):
            raise refusal(schemas[verdict.place], verdict.reason)
        raise refusal(schemas[0], f"not beside the others: {verdict.reason}")

    async def close(self) -> None:
        """End the processes."""
        for process in self._idle:
            _kill(process)
            await process.communicate()
        self._idle.clear()

    async def _verdict(self, line: bytes) -> Verdict:
        key = sha256(line).digest()
        if key not in self._verdicts:
            async with self._turns:
                self._verdicts[key] = await self._ask(line + b"\n")
        self._verdicts.move_to_end(key)
        if len(self._verdicts) > MAX_VERDICTS:
            self._verdicts.popitem(last=False)
        return self._verdicts[key]

    async def _ask(self, line: bytes) -> Verdict:
        while self._idle:
            if answer := await self._exchange(self._idle.pop(), line):
                return answer
        answer = await self._exchange(await _start(), line)
        if answer is None:
            raise NotReady("the process that reads schemas was ended")
        return answer

    async def _exchange(self, process: Process, line: bytes) -> Verdict | None:
        """The verdict, or nothing from a process that has ended."""
        assert process.stdin is not None
        assert process.stdout is not None
        answer = b""
        try:
            with suppress(ConnectionError):
                process.stdin.write(line)
                await process.stdin.drain()
                answer = await process.stdout.readline()
        finally:
            # Whoever no longer wants to know leaves a process that still reads.
            if answer:
                self._idle.append(process)
            else:
                _kill(process)
        return Verdict(*json.loads(answer)) if answer else None


async def _start() -> Process:
    command = (sys.executable, "-c", _COMMAND, *sys.path)
    return await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, start_new_session=True
    )


def _kill(process: Process) -> None:
    """End a process and its child; a session of their own keeps signals of a terminal away."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
