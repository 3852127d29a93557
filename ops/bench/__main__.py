"""The command `python -m ops.bench`: workloads and targets in, tables and a JSON file out."""

import argparse
import asyncio
import json
import platform
import secrets
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ops.bench.client import Failure, Target
from ops.bench.counters import growth, read_counters
from ops.bench.report import make_report
from ops.bench.rounds import Round, interleave, open_client, warm_up
from ops.bench.table import to_markdown
from ops.bench.workload import WORKLOADS, Content, Workload, make_contents, parse_images

EXIT_FAILED_REQUESTS = 1
EXIT_NO_QUIET_ROUND = 3  # 2 is argparse's own


def parse_target(text: str) -> Target:
    """`NAME=BASE_URL,MODEL[,plain][,pid=PID]`; ValueError on anything else."""
    name, equals, rest = text.partition("=")
    base_url, *more = rest.split(",")
    if not (name and equals and base_url.rstrip("/").endswith("/v1") and more and more[0]):
        raise ValueError(f"{text}: expected NAME=http://HOST:PORT/v1,MODEL[,plain][,pid=PID]")
    target = Target(name, base_url.rstrip("/"), more[0])
    for option in more[1:]:
        if option == "plain":
            target = replace(target, plain=True)
        elif option.startswith("pid="):
            target = replace(target, pid=int(option.removeprefix("pid=")))
        else:
            raise ValueError(f"{text}: unknown option {option}")
    return target


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """What the command line says; exits with usage where it is wrong."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["W1"], help=", ".join(WORKLOADS))
    parser.add_argument("--target", dest="targets", type=parse_target, action="append",
                        required=True, metavar="NAME=BASE_URL,MODEL[,plain][,pid=PID]")  # fmt: skip
    parser.add_argument("--json", type=Path, help="write everything here")
    parser.add_argument("--api-key", help="sent to every target")
    parser.add_argument("--seed", type=int, help="new for each run unless given; see README")
    parser.add_argument("--max-foreign-cores", type=float, default=0.15)
    parser.add_argument("--timeout-seconds", type=float, default=600.0)
    overrides = parser.add_argument_group("overrides of the workloads' own values")
    overrides.add_argument("--images", type=parse_images, help="COUNTxWIDTHxHEIGHT[,...] or none")
    overrides.add_argument("--image-sets", dest="num_image_sets", type=int,
                           help="repeat so many sets of images")  # fmt: skip
    overrides.add_argument("--rate", dest="requests_per_second", type=float,
                           help="requests per second, instead of a closed loop")  # fmt: skip
    overrides.add_argument("--concurrency", type=int)
    overrides.add_argument("--max-tokens", type=int)
    overrides.add_argument("--words", dest="num_words", type=int)
    for what in ("requests", "rounds", "warmup"):
        overrides.add_argument(f"--{what}", dest=f"num_{what}", type=int)
    parsed = parser.parse_args(arguments)
    unknown = [name for name in parsed.workloads if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    return parsed


def with_overrides(workload: Workload, arguments: argparse.Namespace) -> Workload:
    """The workload with every value that the command line gives."""
    given = vars(arguments)
    fields = {key: given[key] for key in asdict(workload) if given.get(key) is not None}
    return replace(workload, **fields)


async def run(workload: Workload, arguments: argparse.Namespace, seed: int) -> dict[str, Any]:
    """Warm up and measure every target with one workload; returns its report."""
    targets = [replace(target, api_key=arguments.api_key) for target in arguments.targets]
    contents = make_contents(workload, seed)
    rounds: list[Round] = []
    async with open_client(arguments.timeout_seconds) as client:
        for target in targets:
            _refuse(
                target, await warm_up(client, target, contents[: workload.num_warmup], workload)
            )
        before = {target.name: await read_counters(client, target) for target in targets}
        timed: Sequence[Content] = contents[workload.num_warmup :]
        async for each in interleave(client, targets, timed, workload, seed):
            rounds.append(each)
            _show(each)
        counters = {
            target.name: growth(before[target.name], await read_counters(client, target))
            for target in targets
        }
    report = make_report(rounds, arguments.max_foreign_cores, counters)
    return {"workload": asdict(workload), "seed": seed, **report}


def _refuse(target: Target, failures: Sequence[Failure]) -> None:
    if failures:
        raise SystemExit(f"{target.name} failed in the warm-up: {failures[0].reason}")


def _show(each: Round) -> None:
    foreign = (
        "unwatched" if each.foreign_cores is None else f"others {each.foreign_cores:.2f} cores"
    )
    print(
        f"# round {each.turn} {each.target}: {len(each.outcomes)} requests"
        f" in {each.wall_seconds:.2f} s, {foreign}",
        file=sys.stderr,
    )


def main() -> int:
    """Run each workload, print the tables; the exit status says whether to trust them."""
    arguments = parse_arguments()
    first_seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    reports: dict[str, dict[str, Any]] = {}
    for position, name in enumerate(arguments.workloads):
        print(f"# {name}", file=sys.stderr)
        workload = with_overrides(WORKLOADS[name], arguments)
        # Workloads share sizes, so with one seed they would share images.
        reports[name] = asyncio.run(run(workload, arguments, first_seed + position))
    print(to_markdown(reports))
    if arguments.json:
        machine = {"platform": platform.platform(), "processor": platform.processor()}
        whole = {"started_at": started_at, "machine": machine, "workloads": reports}
        arguments.json.write_text(json.dumps(whole, indent=1) + "\n")
    return exit_status(reports)


def exit_status(reports: dict[str, dict[str, Any]]) -> int:
    """0, or why the figures are not to be trusted."""
    rounds = [
        each
        for report in reports.values()
        for target in report["targets"].values()
        for each in target["rounds"]
    ]
    if any(each["num_failures"] for each in rounds):
        return EXIT_FAILED_REQUESTS
    quiet = all(report["num_rounds_kept"] for report in reports.values())
    return 0 if quiet else EXIT_NO_QUIET_ROUND


if __name__ == "__main__":
    sys.exit(main())
