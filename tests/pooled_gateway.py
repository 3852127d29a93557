"""Main of a gateway whose workers are those of `tests.pooled_worker`, of the kind in POOL_KIND."""

import os
import sys
import time

import uvloop

from config.logs import set_up_logs
from config.settings import load_settings
from config.workers import WorkerSpec
from gateway.edge.sockets import listen
from gateway.server import Gateway
from tests.pooled_worker import pooled_command
from workers.pool import Pool, WorkerStartError


class PooledGateway(Gateway):
    """Has workers on the CPU do what is for CUDA."""

    def _make_pool(self, specs: tuple[WorkerSpec, ...]) -> Pool:
        return Pool(
            self._settings,
            specs,
            on_event=self._on_event,
            on_lost=self._on_lost,
            transport="cuda_ipc",
            command=pooled_command(os.environ.get("POOL_KIND", "whole")),
        )


async def serve() -> None:
    settings = load_settings(os.environ)
    set_up_logs(settings.server.log_level, "gateway", settings.server.log_format)
    await PooledGateway(settings, listen(settings.server), time.monotonic()).run()


if __name__ == "__main__":
    try:
        uvloop.run(serve())
    except WorkerStartError as error:
        sys.exit(f"fovea: {error}")
