"""A process that reads schemas in the gateway's stead: lists of them in, a verdict on each out.

The library is native code without limits of its own that hold: schemas of some kilobytes overflow
its stack or have it allocate gigabytes, and either ends the process. So each list is read by a
child with little of everything, and what ends that child is the fault of a schema.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from gateway.structured.json_grammar import why_refused

MAX_SECONDS = 2  # of CPU time, for all schemas of a request
MAX_MEBIBYTES = 128
# An engine reads the same in threads of 8 MiB or, where the system sets no limit, of 2.
_STACK_BYTES = 1 << 20
_TOO_DEEP = "it has too many parts, or they refer to each other too deep"
_TOO_LARGE = f"to read it takes more than {MAX_MEBIBYTES} MiB of memory"
_REASONS = {
    signal.SIGSEGV: _TOO_DEEP,
    signal.SIGBUS: _TOO_DEEP,
    signal.SIGABRT: _TOO_LARGE,
    signal.SIGXCPU: f"to read it takes more than {MAX_SECONDS} s",
}


class Verdict(NamedTuple):
    """What became of a list of rules; a reason that is empty: all can be taken."""

    place: int  # of the rule that the reason is about; behind the last: all of them together
    reason: str


def judge(rules: Sequence[str]) -> Verdict:
    """Read rules in a child of this process, no other thread of which may be at work.

    Raises:
        ChildProcessError: the child was ended by something other than its rules.
    """
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _read(rules, tell)
    os.close(tell)
    with open(told, encoding="utf-8") as file:
        *places, reason = file.read().split("\n")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if (code and -code not in _REASONS) or not places:
        raise ChildProcessError(f"the child that reads schemas ended by {code}")
    return Verdict(int(places[-1]), _REASONS[signal.Signals(-code)] if code else reason)


def _read(rules: Sequence[str], tell: int) -> NoReturn:
    """Tell the index of each rule before it is read, each on its line; then the reason."""
    try:
        _limit()
        reason = ""
        for index, rule in enumerate([*rules, " | ".join(rules)]):
            if reason or index == len(rules) == 1:
                break
            os.write(tell, b"%d\n" % index)
            reason = why_refused(rule)
        os.write(tell, reason.encode())
        os._exit(0)
    except MemoryError:
        os.kill(os.getpid(), signal.SIGABRT)
    finally:
        os._exit(1)


def _limit() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where the library tells of its end
    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = used * resource.getpagesize() + (MAX_MEBIBYTES << 20)
    for limit, soft in (
        (resource.RLIMIT_AS, most),
        (resource.RLIMIT_STACK, _STACK_BYTES),
        (resource.RLIMIT_CPU, MAX_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (soft, resource.getrlimit(limit)[1]))


def main() -> None:
    """Judge lists, each a line of JSON, until there are no more."""
    for line in sys.stdin.buffer:
        sys.stdout.buffer.write(json.dumps(judge(json.loads(line))).encode() + b"\n")
        sys.stdout.buffer.flush()
