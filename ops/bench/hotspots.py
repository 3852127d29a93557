"""Where a server spends its time: py-spy's raw stacks in, shares by process and function out.

`python -m ops.bench.hotspots FILE`, where FILE comes from `py-spy record --subprocesses -f raw`.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROCESS = re.compile(r'^process (?P<pid>\d+):"(?P<command>.*)"$')
INSTALLED_UNDER = re.compile(r"\(\S*(?:site-packages|lib/python3\.\d+)/")
LINE_NUMBER = re.compile(r":\d+\)$")
COMMAND_CHARACTERS = 40
FRAME_OF_EVERYTHING = 0.95  # a share above which a function says nothing: main, the loop

# Innermost frames of threads that wait, which py-spy takes for running now and then.
WAITING = (
    "Condition.wait (threading",
    "Connection._recv (multiprocessing",
    "Event.wait (threading",
    "Poller.poll (zmq",
    "Queue.get (queue",
    "Runner.run (asyncio",  # an event loop that is written in C and has nothing to do
    "GarbageCollectorThread.run (zmq",
    "_PollLikeSelector.select (selectors",
    "EpollSelector.select (selectors",
    "_wait_for_tstate_lock (threading",
    "_worker (concurrent",
    "sched_yield (",
)


@dataclass(slots=True)
class Profile:
    """Samples of one process; owned by `read_profiles` while it counts."""

    num_working: int = 0
    num_waiting: int = 0
    own: Counter[str] = field(default_factory=Counter)  # in the function itself
    within: Counter[str] = field(default_factory=Counter)  # in it or in what it called

    def add(self, frames: list[str], num_samples: int) -> None:
        """Count one stack, outermost frame first."""
        if frames[-1].startswith(WAITING):
            self.num_waiting += num_samples
            return
        self.num_working += num_samples
        self.own[frames[-1]] += num_samples
        for frame in set(frames):
            self.within[frame] += num_samples


def read_profiles(lines: Iterable[str]) -> dict[str, Profile]:
    """The samples of each process, by `pid command`."""
    profiles: dict[str, Profile] = {}
    for line in lines:
        stack, _, num_samples = line.rstrip().rpartition(" ")
        process, frames = _split(stack.split(";"))
        if frames:
            profiles.setdefault(process, Profile()).add(frames, int(num_samples))
    return profiles


def _split(parts: list[str]) -> tuple[str, list[str]]:
    # A child's stack starts with the frames of its ancestors' processes.
    process = ""
    frames: list[str] = []
    for part in parts:
        if found := PROCESS.match(part):
            process = f"{found['pid']} {found['command'][:COMMAND_CHARACTERS]}"
            frames.clear()
        else:
            frames.append(LINE_NUMBER.sub(")", INSTALLED_UNDER.sub("(", part)))
    return process, frames


def to_text(profiles: dict[str, Profile], num_rows: int) -> str:
    """For each process that worked, the functions with most samples; busiest process first."""
    busiest = sorted(profiles.items(), key=lambda item: -item[1].num_working)
    return "\n".join(
        line
        for process, profile in busiest
        if profile.num_working
        for line in _process_lines(process, profile, num_rows)
    )


def _process_lines(process: str, profile: Profile, num_rows: int) -> list[str]:
    most = FRAME_OF_EVERYTHING * profile.num_working
    within = Counter({frame: count for frame, count in profile.within.items() if count <= most})
    lines = [f"{process}: {profile.num_working} samples at work, {profile.num_waiting} waiting"]
    for title, counts in (("itself", profile.own), ("with what it calls", within)):
        lines.append(f"  {title}")
        lines += [
            f"    {100 * count / profile.num_working:5.1f} %  {frame}"
            for frame, count in counts.most_common(num_rows)
        ]
    return lines


def main() -> None:
    """Print the profile in the file that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m ops.bench.hotspots")
    parser.add_argument("file", type=Path, help="what py-spy record -f raw wrote")
    parser.add_argument("--rows", type=int, default=20, help="functions in each list")
    arguments = parser.parse_args()
    with arguments.file.open() as lines:
        print(to_text(read_profiles(lines), arguments.rows))


if __name__ == "__main__":
    main()
