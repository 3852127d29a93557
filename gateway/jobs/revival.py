"""The news that a worker takes jobs, for whoever waits for one."""

import asyncio


class Revival:
    """Owned by the gateway's event loop."""

    def __init__(self) -> None:
        self._news = asyncio.Event()

    def tell(self) -> None:
        """A worker is ready."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self) -> None:
        """Wait until the next worker is ready."""
        await self._news.wait()
