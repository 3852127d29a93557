"""Main of a gateway whose workers are without a model; see `tests.fakes` for faults to provoke."""

import os
import time

import uvloop

from config.logs import set_up_logs
from config.settings import load_settings
from config.workers import WorkerSpec
from gateway.edge.sockets import listen
from gateway.server import Gateway
from tests.fakes import FAKE_COMMAND
from workers.pool import Pool


class FakeGateway(Gateway):
    """Everything real but the models."""

    def _make_pool(self, specs: tuple[WorkerSpec, ...]) -> Pool:
        return Pool(
            self._settings,
            specs,
            on_event=self._on_event,
            on_lost=self._on_lost,
            vocabulary=self._checkpoint.vocabulary(),
            command=FAKE_COMMAND,
        )


async def serve() -> None:
    settings = load_settings(os.environ)
    set_up_logs(settings.server.log_level, "gateway", settings.server.log_format)
    await FakeGateway(settings, listen(settings.server), time.monotonic()).run()


if __name__ == "__main__":
    uvloop.run(serve())
