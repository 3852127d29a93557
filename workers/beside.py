"""A stage that works in a thread of its own, so that the loop need not wait for its steps.

On a CPU one pass of the vision tower takes as long as many steps of an engine. In a thread, which
lets go of the interpreter while it computes, the system shares the cores out between the two.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic

from workers.heart import Turn
from workers.messages import FromWorker
from workers.niceness import give_way
from workers.stage import Job, Stage


class Beside(Generic[Job]):
    """Stands for a stage whose methods are called by a thread alone. Owned by the worker's loop.

    `busy` means here that there is something to take: the stage itself is not waited for.
    """

    def __init__(self, stage: Stage[Job], wake: Callable[[], None]) -> None:
        """`wake` has the loop look for news; any thread may call it."""
        self.turn = Turn()  # of the thread
        self._stage: Stage[Job] = stage
        self._wake = wake
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._news: deque[list[FromWorker] | Exception] = deque()
        threading.Thread(target=self._run, name="beside", daemon=True).start()

    @property
    def busy(self) -> bool:
        """See `Stage`."""
        return bool(self._news)

    def put(self, job: Job) -> None:
        """See `Stage`; a stage that raises at this does so in a later step."""
        self._inbox.put(lambda: self._stage.put(job))

    def abort(self, job_id: str) -> None:
        """See `Stage`."""
        self._inbox.put(lambda: self._stage.abort(job_id))

    def step(self) -> list[FromWorker]:
        """What has come of the steps since the last call; raises what one of them raised."""
        events: list[FromWorker] = []
        while self._news:
            news = self._news.popleft()
            if isinstance(news, Exception):
                self._news.appendleft(events)
                raise news
            events += news
        return events

    def _run(self) -> None:
        give_way()
        while True:
            self.turn.end()
            calls = [self._inbox.get()] if not self._stage.busy else []
            self.turn.begin()
            while not self._inbox.empty():
                calls.append(self._inbox.get())
            try:
                for call in calls:
                    call()
                self._tell(self._stage.step())
            except Exception as error:  # noqa: BLE001 - the loop decides what it means
                self._tell(error)

    def _tell(self, news: list[FromWorker] | Exception) -> None:
        if news:
            self._news.append(news)
            self._wake()
