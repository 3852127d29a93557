"""`python -m ops.bench.deferral MODEL`: eager against deferred, from bytes to first tokens."""

import argparse
import asyncio
import importlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from gateway.encoding.flight import Payloads
from ops.bench.client import Target, make_body
from ops.bench.deferral.materialise import Cost, Route, compare, median_cost, take_pictures
from ops.bench.deferral.rules import EagerPatches, OneForm
from ops.bench.deferral.servers import answer, both, stage_seconds
from ops.bench.images import Size
from ops.bench.report import make_report
from ops.bench.rounds import interleave, open_client, warm_up
from ops.bench.workload import LARGE, Workload, make_contents
from workers.families import family_of, load_layout

PARTS = ("materialise", "serve")
MIXED = (Size(1536, 1024), Size(640, 480), Size(200, 150), Size(1080, 1920), Size(4032, 3024))
SETS: Mapping[str, tuple[Size, ...]] = MappingProxyType(
    {"1x1536x1024": (LARGE,), "4x1536x1024": (LARGE,) * 4, "mixed": MIXED}
)
NUM_COMPARED = 3  # answers of each set of images
MAX_TOKENS = 8
STAGES = ("decode", "preprocess", "digest", "encode")
BASELINE, OURS = "eager", "deferred"

WAYS: Mapping[str, Callable[[], Payloads]] = MappingProxyType(
    {
        BASELINE: EagerPatches,
        "resized": lambda: OneForm("resized"),
        "source": lambda: OneForm("source"),
        "jpeg": lambda: OneForm("jpeg"),
    }
)


def materialise_table(model: Path, num_rounds: int, seed: int) -> str:
    """Bytes and milliseconds of each way, and the baseline over it, round by round."""
    torch.set_num_threads(1)
    load = importlib.import_module(f"workers.families.{family_of(model)}.load")
    vision = load.load_models(model, ("vision",), "cpu", "float32", lambda done, total: None).vision
    layout = load_layout(model)
    lines = [
        "| images | way | MB sent | make ms | copy ms | prepare ms | total ms "
        "| eager/this bytes | eager/this make + copy | eager/this total |",
        "|" + "---|" * 10,
    ]
    for name, sizes in SETS.items():
        pictures = take_pictures(layout, sizes, seed)
        routes = {way: Route(make(), vision) for way, make in WAYS.items()}
        served = {way: route for way, route in routes.items() if route.is_served(pictures[0])}
        found = compare(pictures, served, num_rounds)
        lines += [_materialise_row(name, way, found) for way in found]
    return "\n".join(lines)


def _materialise_row(images: str, way: str, found: Mapping[str, Sequence[Cost]]) -> str:
    cost = median_cost(found[way])
    parts = (cost.make_seconds, cost.copy_seconds, cost.prepare_seconds, cost.total_seconds)
    pairs = list(zip(found[BASELINE], found[way], strict=True))
    ratios = (
        [eager.num_bytes / this.num_bytes for eager, this in pairs],
        [eager.gateway_seconds / this.gateway_seconds for eager, this in pairs],
        [eager.total_seconds / this.total_seconds for eager, this in pairs],
    )
    cells = [f"{1000 * seconds:.2f}" for seconds in parts] + [_spread(each) for each in ratios]
    return f"| {images} | {way} | {cost.num_bytes / 1e6:.2f} | " + " | ".join(cells) + " |"


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}..{max(values):.2f})"


async def serve_rows(
    images: str, targets: Sequence[Target], workload: Workload, seed: int
) -> list[str]:
    """Ratios of the deferred to the eager gateway under one load, and where the time went."""
    contents = make_contents(workload, seed)
    async with open_client(600.0) as client:
        for target in targets:
            await warm_up(client, target, contents[: workload.num_warmup], workload)
        before = {target.name: stage_seconds(target) for target in targets}
        timed = contents[workload.num_warmup :]
        rounds = [each async for each in interleave(client, targets, timed, workload, seed)]
    report = make_report(rounds, float("inf"), {})
    ratios = report["ratios"][f"{BASELINE}/{OURS}"]
    num_images = len(workload.images) * workload.num_requests * workload.num_rounds
    rows = [_ratio_row(images, workload, ratios)]
    for target in targets:
        grown = _grown(before[target.name], stage_seconds(target), num_images)
        summary = report["targets"][target.name]["summary"]
        cpu_seconds = sum(summary["server_cpu_seconds_per_request"].values())
        rows.append(
            f"| | | {target.name}, ms per image: {grown}; CPU s per request: {cpu_seconds:.2f}; "
            f"failed: {summary['num_failures']} | | | |"
        )
    return rows


def _ratio_row(images: str, workload: Workload, ratios: Mapping[str, Any]) -> str:
    kinds = ("requests_per_second", "first_token_p50", "first_token_p90", "total_p50")
    cells = []
    for kind in kinds:
        each = ratios[kind]
        cells.append(f"{each['median']:.2f} ({each['min']:.2f}..{each['max']:.2f})")
    return f"| {images} | {workload.concurrency} | " + " | ".join(cells) + " |"


def _grown(before: Mapping[str, float], after: Mapping[str, float], num_images: int) -> str:
    return ", ".join(
        f"{stage} {1000 * (after.get(stage, 0) - before.get(stage, 0)) / num_images:.1f}"
        for stage in STAGES
    )


def check_answers(targets: Sequence[Target], workload: Workload, seed: int) -> int:
    """How many answers were compared; all of a request's must be equal."""
    contents = make_contents(workload, seed)[:NUM_COMPARED]
    for content in contents:
        texts = {answer(target, make_body(target, content, workload)) for target in targets}
        assert len(texts) == 1, "the gateways answer differently"
        assert texts != {""}
    return len(contents)


def serve_lines(model: Path, arguments: argparse.Namespace) -> Iterator[str]:
    """Throughput and first tokens over HTTP, for each number of owners, as they are found."""
    yield "| images | in flight | requests/s | first token p50 | first token p90 | total p50 |"
    yield "|" + "---|" * 6
    for num_owners in arguments.owners:
        with both(model, num_owners) as targets:
            yield f"| {num_owners} owners | | eager/deferred of each figure | | | |"
            seeds = count(arguments.seed)  # another for each load: no image comes twice
            for name in arguments.sets:
                sizes = SETS[name]
                for concurrency in arguments.in_flight:
                    load = _workload(sizes, concurrency, arguments)
                    yield from asyncio.run(serve_rows(name, targets, load, next(seeds)))
                load = _workload(sizes, 1, arguments)
                num_equal = check_answers(targets, load, next(seeds))
                yield f"| {name} | | {num_equal} of {num_equal} answers are equal | | | |"


def _workload(sizes: tuple[Size, ...], concurrency: int, arguments: argparse.Namespace) -> Workload:
    return Workload(
        images=sizes,
        concurrency=concurrency,
        max_tokens=MAX_TOKENS,
        num_requests=arguments.requests,
        num_rounds=arguments.rounds,
        num_warmup=-(-2 * max(arguments.owners) // len(sizes)),  # every owner gets to work
    )


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.deferral", description=__doc__)
    parser.add_argument("model", type=Path, help="checkpoint folder")
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--owners", type=int, nargs="+", default=(1, 2, 4))
    parser.add_argument("--in-flight", type=int, nargs="+", default=(1, 4))
    parser.add_argument("--sets", nargs="+", default=tuple(SETS), choices=tuple(SETS))
    parser.add_argument("--requests", type=int, default=4, help="of each round and gateway")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {unknown.pop()}; there are {', '.join(PARTS)}")
    if "materialise" in arguments.parts:
        print(materialise_table(arguments.model, arguments.rounds, arguments.seed), flush=True)
    if "serve" in arguments.parts:
        for line in serve_lines(arguments.model, arguments):
            print(line, flush=True)


if __name__ == "__main__":
    main()
