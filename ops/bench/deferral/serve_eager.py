"""`fovea serve`, but for its payloads: `python -m ops.bench.deferral.serve_eager`."""

import os
import time

import uvloop

from config.logs import set_up_logs
from config.settings import Settings, load_settings
from gateway.edge.sockets import listen
from gateway.server import Gateway
from gateway.start.memory import share_one_heap
from ops.bench.deferral.rules import EagerPatches


def main() -> None:
    """Serve with patches made in the gateway."""
    begun = time.monotonic()
    settings = load_settings(os.environ)
    share_one_heap()
    set_up_logs(settings.server.log_level, "gateway")
    uvloop.run(_serve(settings, begun))


async def _serve(settings: Settings, begun: float) -> None:
    gateway = Gateway(settings, listen(settings.server), begun, lambda _: EagerPatches())
    await gateway.run()


if __name__ == "__main__":
    main()
