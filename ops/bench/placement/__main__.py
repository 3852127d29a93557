"""`python -m ops.bench.placement`: simulates placement and prints tables."""

import argparse
import time
from collections import Counter
from collections.abc import Sequence

from gateway.encoding.place import Candidate, ImageTask
from ops.bench.placement.burst import Burst, Makespans, compare, missed
from ops.bench.placement.mixes import GEOMETRIES, MIXES
from ops.bench.placement.policies import POLICIES, ours
from ops.bench.placement.stream import Stream, simulate

OWNERS = (1, 2, 4, 8, 16, 64)
PRESSURES = (0.5, 2.0)
MOST_IMAGES = 64  # that a request may have by default
BAR_OWNERS = 8
PARTS = ("bar", "burst", "stream", "time")
NUM_TIMED = 50


def bar_table(count: int, seed: int) -> str:
    """Makespan over the lower bound where it can be reached: at 8 owners, no image too large."""
    bursts = [
        Burst(geometry, mix, num_images, BAR_OWNERS, is_divisible=True)
        for num_images in (16, 32, MOST_IMAGES)
        for geometry in GEOMETRIES
        for mix in MIXES
    ]
    verdicts = sum((missed(burst, count, seed) for burst in bursts), Counter())
    summary = ", ".join(f"{verdict}: {number}" for verdict, number in verdicts.most_common())
    return f"{_burst_table(bursts, count, seed)}\n\nof all requests, within the limit: {summary}"


def burst_table(owners: Sequence[int], count: int, seed: int) -> str:
    """The same for the largest requests, whatever is in them, and any number of owners."""
    bursts = [
        Burst(geometry, mix, MOST_IMAGES, num_owners, is_divisible=False)
        for num_owners in owners
        for geometry in GEOMETRIES
        for mix in MIXES
    ]
    return _burst_table(bursts, count, seed)


def _burst_table(bursts: Sequence[Burst], count: int, seed: int) -> str:
    columns = ("pigeonhole", *POLICIES)
    heads = ("geometry", "mix", "images", "owners", "requests", *columns)
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for burst in bursts:
        if found := compare(burst, count, seed):
            cells = [_cell(found[name]) for name in columns]
            counted = found["ours"].num_requests
            row = (burst.geometry, burst.mix, burst.num_images, burst.num_owners, counted, *cells)
            lines.append("| " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


def _cell(found: Makespans) -> str:
    return f"{found.mean:.3f} ({found.highest:.2f}; {found.num_over_limit})"


def stream_table(owners: Sequence[int], seed: int) -> str:
    """Hit rate, time and balance: one row for each stream and policy."""
    lines = [
        "| geometry | mix | owners | pressure | holder known | policy | hit rate | to perfect | "
        "mean time | p99 time | imbalance |",
        "|" + "---|" * 11,
    ]
    for num_owners in owners:
        for geometry, mix in (("kimi_k25", "chat"), ("qwen2_5_vl", "photos")):
            for pressure in PRESSURES:
                for is_known in (True, False):
                    stream = Stream(geometry, mix, num_owners, pressure, is_known)
                    lines += _stream_rows(stream, seed)
    return "\n".join(lines)


def _stream_rows(stream: Stream, seed: int) -> list[str]:
    found = {name: simulate(stream, make(), seed) for name, make in POLICIES.items()}
    perfect = found["perfect affinity"].hit_rate
    known = "yes" if stream.is_holder_known else "no"
    head = f"{stream.geometry} | {stream.mix} | {stream.num_owners} | {stream.pressure} | {known}"
    return [
        f"| {head} | {name} | {each.hit_rate:.3f} | {each.hit_rate - perfect:+.3f} | "
        f"{each.mean_seconds:.2f} | {each.p99_seconds:.2f} | {each.imbalance:.2f} |"
        for name, each in found.items()
    ]


def milliseconds_of_placing(num_images: int, num_owners: int) -> float:
    """Best of many runs of our placement, with images that all differ in size."""
    plan = GEOMETRIES["kimi_k25"]
    tasks = tuple(
        ImageTask(at, plan((300 + 20 * at, 1800 - 20 * at)), at.to_bytes(16))
        for at in range(num_images)
    )
    owners = tuple(Candidate(index, f"owner-{index}", 0.0) for index in range(num_owners))
    best = float("inf")
    for _ in range(NUM_TIMED):
        started_at = time.perf_counter()
        ours(tasks, owners)
        best = min(best, time.perf_counter() - started_at)
    return 1000 * best


def main() -> None:
    """Print what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.placement", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=", ".join(PARTS))
    parser.add_argument("--owners", type=int, nargs="+", default=OWNERS)
    parser.add_argument("--requests", type=int, default=100, help="of each burst")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {unknown.pop()}; there are {', '.join(PARTS)}")
    for part in arguments.parts:
        print(f"\n{part}\n\n{_run(part, arguments)}")


def _run(part: str, arguments: argparse.Namespace) -> str:
    match part:
        case "bar":
            return bar_table(arguments.requests, arguments.seed)
        case "burst":
            return burst_table(arguments.owners, arguments.requests, arguments.seed)
        case "stream":
            return stream_table(arguments.owners, arguments.seed)
    shapes = ((1, 1), (1, 8), (64, 8), (64, 64))
    return "\n".join(
        f"{images} images, {owners} owners: {milliseconds_of_placing(images, owners):.3f} ms"
        for images, owners in shapes
    )


if __name__ == "__main__":
    main()
