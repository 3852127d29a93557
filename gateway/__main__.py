"""The command line: `fovea serve`, `fovea doctor`, `fovea config` and `fovea key`."""

import argparse
import os
import sys
import time

import uvloop

from config.logs import set_up_logs
from config.settings import Settings, SettingsError, load_settings
from gateway.edge.keys import KeyFileError, new_key
from gateway.edge.sockets import StartError, listen
from gateway.server import serve
from gateway.start.doctor import examine, report
from gateway.start.listing import settings_listing
from gateway.start.memory import share_one_heap
from gateway.start.versions import VersionError, check_torch_pair
from workers.families import UnsupportedCheckpoint
from workers.pool import WorkerStartError


def main() -> None:
    """Parse the command, read the settings, run; a start that cannot work exits with 1."""
    begun = time.monotonic()
    asked = _parse_command()
    try:
        if asked.command == "key":
            _print_key(asked.name, asked.words)
        elif asked.command == "config":
            sys.stdout.write(settings_listing(load_settings(os.environ)))
        elif asked.command == "doctor":
            sys.exit(report(examine(os.environ), sys.stdout.write))
        else:
            _serve(load_settings(os.environ), begun)
    except (
        KeyFileError,
        SettingsError,
        StartError,
        UnsupportedCheckpoint,
        VersionError,
        WorkerStartError,
    ) as error:
        sys.exit(f"fovea: {error}")


def _parse_command() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fovea", description="Serve a vision-language model.")
    commands = parser.add_subparsers(dest="command", title="commands")
    commands.add_parser("serve", help="serve, which is also what happens without a command")
    commands.add_parser("doctor", help="say what will work and what will not, before serving")
    commands.add_parser("config", help="print the settings as they are read")
    key = commands.add_parser("key", help="make an API key and its line for FOVEA_API_KEYS_FILE")
    key.add_argument("name", help="whose key it is, as limits and logs call it")
    key.add_argument(
        "words",
        nargs="*",
        metavar="SETTING=VALUE",
        help=(
            "requests_per_minute, images_per_minute, tokens_per_minute, concurrency; "
            "scope=metrics for a key that reads /metrics alone"
        ),
    )
    return parser.parse_args()


def _print_key(name: str, words: list[str]) -> None:
    """The line goes to standard output, so that `>>` takes it to the file without the key."""
    key, line = new_key(name, words)
    sys.stderr.write(f"The key of {name}, shown this once and kept nowhere:\n{key}\n")
    sys.stdout.write(f"{line}\n")


def _serve(settings: Settings, begun: float) -> None:
    share_one_heap()
    set_up_logs(settings.server.log_level, "gateway", settings.server.log_format)
    check_torch_pair()
    listener = listen(settings.server)
    uvloop.run(serve(settings, listener, begun))


if __name__ == "__main__":
    main()
