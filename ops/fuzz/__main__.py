"""Hostile inputs by the hundred thousand: does anything crash, hang, grow, or break its word?

`python -m ops.fuzz` makes inputs for seven targets and judges what becomes of each: headers and
pixels of image files (damaged, spliced, with wrong blocks whose checksums are right), data URIs,
JSON bodies through the whole gateway around a worker that answers at once, frames of both wires,
files of tensors, and schemas that answers are to follow. Nothing leaves the machine. Input N of a
target depends on nothing but the seed, so `python -m ops.fuzz body --first N --inputs 1` makes it
again. The exit status is 0 if nothing happened that must not; inputs that did something are kept
as files.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ops.fuzz.run import Memory, Report, Task, input_of, run_apart
from ops.fuzz.target import Wrong
from ops.fuzz.targets import WHOLE_RUN, open_target

# What a process may have grown by since it was warm, by its slope over the rest of the run.
MAX_GROWTH_MEBIBYTES = 24.0
WARM_SHARE = 0.3
# What it may ever have held above what it began with: the limits on pixels are a mebipixel here.
MAX_PEAK_MEBIBYTES = 256.0
_SHOWN_OUTCOMES = 12
_TELL_SECONDS = 30.0


def growth(samples: Sequence[Memory]) -> float:
    """By how many mebibytes memory grew since it was warm, by least squares over that part."""
    warm_at = samples[0].index + WARM_SHARE * (samples[-1].index - samples[0].index)
    rest = [each for each in samples if each.index >= warm_at]
    if len(rest) < 2:
        return 0.0
    slope, _ = np.polyfit([each.index for each in rest], [each.private for each in rest], 1)
    return float(slope * (rest[-1].index - rest[0].index))


def judge_memory(samples: Sequence[Memory]) -> list[str]:
    """What is wrong with the memory of a run, of which each process begins with an own sample."""
    wrongs = []
    if (grown := growth(samples)) > MAX_GROWTH_MEBIBYTES:
        wrongs.append(f"memory grew by {grown:.1f} MiB")
    peak = max(each.most for each in samples) - samples[0].most
    if peak > MAX_PEAK_MEBIBYTES:
        wrongs.append(f"{peak:.0f} MiB more at once than at the beginning")
    return wrongs


def show(name: str, report: Report, seconds: float) -> None:
    """Print what came of a target."""
    first, last = report.memory[0], report.memory[-1]
    warm = report.memory[int(WARM_SHARE * (len(report.memory) - 1))]
    per_input = growth(report.memory) / max(1, last.index - warm.index)
    print(f"{name}: {report.num_inputs} inputs in {seconds:.0f} s, {len(report.faults)} faults")
    print(
        f"  memory: {first.private:.1f} MiB at first, {warm.private:.1f} warm, "
        f"{last.private:.1f} at last, {1e4 * per_input:+.2f} MiB per 10,000 inputs; "
        f"at most {max(each.most for each in report.memory):.0f} MiB"
    )
    print(f"  slowest: {1000 * report.slowest_seconds:.0f} ms, input {report.slowest_index}")
    common = report.outcomes.most_common()
    for outcome, count in common[:_SHOWN_OUTCOMES]:
        print(f"  {count:7} {outcome}")
    if rest := common[_SHOWN_OUTCOMES:]:
        print(f"  {sum(count for _, count in rest):7} of {len(rest)} other kinds")


def keep(name: str, report: Report, seed: int, folder: Path) -> None:
    """Write the inputs of faults to files, and print what they did."""
    target = open_target(name)
    folder.mkdir(parents=True, exist_ok=True)
    for fault in report.faults:
        path = folder / f"{name}-{seed}-{fault.index}"
        path.write_bytes(input_of(target, name, seed, fault.index))
        print(f"  FAULT of input {fault.index}, kept as {path}: {fault.what}")
    target.close()


def run_target(task: Task, folder: Path) -> bool:
    """Run one target; whether all went well."""
    begun = told = time.monotonic()
    report = Report()
    for part in run_apart(task):
        report.add(part)
        for fault in part.faults:
            print(f"{task.target}: input {fault.index}: {fault.what}", flush=True)
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            print(f"{task.target}: input {task.first + report.num_inputs}", flush=True)
    show(task.target, report, time.monotonic() - begun)
    keep(task.target, report, task.seed, folder)
    wrongs = judge_memory(report.memory)
    print(*(f"  FAULT: {each}" for each in wrongs), sep="\n", end="\n" if wrongs else "")
    sys.stdout.flush()
    return not report.faults and not wrongs


def replay(name: str, path: Path) -> int:
    """Judge the input in a file, here; the exit status."""
    target = open_target(name)
    try:
        print(target.judge(path.read_bytes()))
    except Wrong as wrong:
        print(f"FAULT: {wrong}")
        return 1
    finally:
        target.close()
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m ops.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", help=f"of {', '.join(WHOLE_RUN)}; all by default")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--inputs", type=int, help="of each target; else as many as suit it")
    parser.add_argument("--share", type=float, default=1.0, help="of a whole run")
    parser.add_argument("--replay", type=Path, help="judge the input in this file, for one target")
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "fovea-fuzz")
    asked = parser.parse_args(arguments)
    if unknown := set(asked.targets) - WHOLE_RUN.keys():
        parser.error(f"no such target: {', '.join(sorted(unknown))}")
    if asked.replay is not None:
        return replay(asked.targets[0], asked.replay)
    all_well = True
    for name in asked.targets or WHOLE_RUN:
        num_inputs = asked.inputs or max(1, int(asked.share * WHOLE_RUN[name]))
        all_well &= run_target(Task(name, asked.seed, asked.first, num_inputs), asked.keep)
    return 0 if all_well else 1


if __name__ == "__main__":
    sys.exit(main())
