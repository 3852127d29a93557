"""Loading progress of the workers in; a bar on a terminal, log lines elsewhere, out."""

import logging
import sys
from typing import Any

from tqdm import tqdm

log = logging.getLogger(__name__)

_LOG_EVERY_SHARE = 0.1


class LoadProgress:
    """Shows how far each worker is with its checkpoint. Owned by the event loop."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._bars: dict[int, tqdm[Any]] = {}
        self._logged: dict[int, float] = {}
        self._on_terminal = sys.stderr.isatty()

    def update(self, worker: int, done: int, total: int) -> None:
        """Take one progress report of a worker."""
        if total <= 0:
            return
        if self._on_terminal:
            self._update_bar(worker, done, total)
        else:
            self._update_log(worker, done, total)

    def finish(self, worker: int) -> None:
        """The worker is ready or gone: its bar is closed."""
        bar = self._bars.pop(worker, None)
        if bar is not None:
            bar.close()
        self._logged.pop(worker, None)

    def _update_bar(self, worker: int, done: int, total: int) -> None:
        if worker not in self._bars:
            self._bars[worker] = tqdm(total=total, desc=f"{self._names[worker]} loads", unit="")
        bar = self._bars[worker]
        bar.update(done - bar.n)

    def _update_log(self, worker: int, done: int, total: int) -> None:
        share = done / total
        if share - self._logged.get(worker, 0.0) >= _LOG_EVERY_SHARE or done == total:
            self._logged[worker] = share
            log.info("%s loads the checkpoint: %d %%", self._names[worker], round(100 * share))
