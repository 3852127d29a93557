"""The text of FOVEA_WORKERS in, one `WorkerSpec` per process out."""

import os
import re
from dataclasses import dataclass

ROLES = ("vision", "language")
_SPEC = re.compile(r"(?P<device>cpu|cuda(:\d+)?):(?P<roles>[a-z+]+)")


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """One worker process: its device (`cpu`, `cuda:0`) and roles (`vision`, `language`)."""

    name: str
    device: str
    roles: tuple[str, ...]


def parse_workers(text: str, num_gpus: int = 0) -> tuple[WorkerSpec, ...]:
    """Read `cpu:vision,cpu:language` and the like; `auto` is one worker per GPU, else one CPU.

    Raises:
        ValueError: the text is not of that form, or a role is held by no worker.
    """
    if text == "auto":
        devices = [f"cuda:{index}" for index in range(num_gpus)] or ["cpu"]
        text = ",".join(f"{device}:vision+language" for device in devices)
    specs = tuple(_parse_one(index, part.strip()) for index, part in enumerate(text.split(",")))
    for role in ROLES:
        if not any(role in spec.roles for spec in specs):
            raise ValueError(f"no worker has the role {role}")
    return specs


def _parse_one(index: int, text: str) -> WorkerSpec:
    match = _SPEC.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not DEVICE:ROLE[+ROLE], such as cpu:vision+language")
    roles = tuple(match["roles"].split("+"))
    if len(set(roles)) < len(roles) or not set(roles) <= set(ROLES):
        raise ValueError(f"{text!r}: roles are vision and language, each at most once")
    return WorkerSpec(name=f"worker-{index}", device=match["device"], roles=roles)


# What the libraries of a worker read once, when they are loaded; the operator's own values win.
_DEFAULTS = {
    # Threads that wait for the others of their team sleep. On a machine with other work, the
    # gateway's own included, spinning made an image request cost thirty times its CPU time.
    "OMP_WAIT_POLICY": "PASSIVE",
    # glibc keeps freed memory for the next pass of the tower: giving it back and faulting it in
    # again took a tenth of a pass.
    "MALLOC_TRIM_THRESHOLD_": "2000000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
}


def worker_environment(num_threads: int) -> dict[str, str]:
    """Environment of a worker process: ours, with the number of threads its libraries may use."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(num_threads))
    return {**_DEFAULTS, **os.environ, **threads}
