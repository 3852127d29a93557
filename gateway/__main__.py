"""The command line: `fovea serve` and `fovea config`."""

import argparse
import os
import sys
import time

import uvloop

from config.logs import set_up_logs
from config.settings import Settings, SettingsError, load_settings
from gateway.listing import settings_listing
from gateway.memory import share_one_heap
from gateway.server import StartError, listen, serve
from gateway.versions import VersionError, check_torch_pair
from workers.families import UnsupportedCheckpoint
from workers.pool import WorkerStartError


def main() -> None:
    """Parse the command, read the settings, run; a start that cannot work exits with 1."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="fovea", description="Serve a vision-language model.")
    parser.add_argument(
        "command",
        nargs="?",
        default="serve",
        choices=("serve", "config"),
        help="serve (the default), or print the settings as they are read",
    )
    command = parser.parse_args().command
    try:
        settings = load_settings(os.environ)
        if command == "config":
            sys.stdout.write(settings_listing(settings))
        else:
            _serve(settings, begun)
    except (
        SettingsError,
        StartError,
        UnsupportedCheckpoint,
        VersionError,
        WorkerStartError,
    ) as error:
        sys.exit(f"fovea: {error}")


def _serve(settings: Settings, begun: float) -> None:
    share_one_heap()
    set_up_logs(settings.server.log_level, "gateway")
    check_torch_pair()
    listener = listen(settings.server)
    uvloop.run(serve(settings, listener, begun))


if __name__ == "__main__":
    main()
