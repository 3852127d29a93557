"""Name servers that answer what a test wants, and a network in which every address is loopback."""

import socket
from collections.abc import Iterable, Sequence

import anyio
import httpcore


class ScriptedLookup:
    """Gives each host's answers one after the other; the last one stays. Numbers are themselves."""

    def __init__(self, **answers: Sequence[Sequence[str]]) -> None:
        self._answers = {name.replace("_", "."): list(answer) for name, answer in answers.items()}
        self.asked: list[str] = []

    async def addresses(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._answers.get(host.removesuffix("."))
        if answers is None:
            found = socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST)
            return [str(found[0][4][0])]
        return answers.pop(0) if len(answers) > 1 else answers[0]

    def close(self) -> None:
        """Nothing to stop."""


class Detour(httpcore.AsyncNetworkBackend):
    """Writes down each address that is dialled, and connects to a port on loopback instead."""

    def __init__(self, port: int, silent: Iterable[str] = (), closed: Iterable[str] = ()) -> None:
        self._port = port
        self._silent = frozenset(silent)  # addresses that never answer
        self._closed = frozenset(closed)  # addresses that refuse
        self.dialled: list[str] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the signature is the library's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.dialled.append(host)
        if host in self._silent:
            await anyio.sleep_forever()
        if host in self._closed:
            raise httpcore.ConnectError
        return await httpcore.AnyIOBackend().connect_tcp("127.0.0.1", self._port)
