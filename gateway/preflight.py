"""What is asked for against what there is, before anything is started."""

from config.workers import WorkerSpec
from gateway.sockets import StartError


def check_devices(specs: tuple[WorkerSpec, ...], num_gpus: int) -> None:
    """Raise StartError if a worker is to have a device that is not there."""
    allowed = {"cpu", "cuda" if num_gpus else "cpu", *(f"cuda:{i}" for i in range(num_gpus))}
    for spec in specs:
        if spec.device not in allowed:
            raise StartError(
                f"FOVEA_WORKERS asks for {spec.device}; this process sees {num_gpus} CUDA devices"
            )


def check_context(wanted: int, allowed: int) -> None:
    """Raise StartError if prompts may be longer than the checkpoint allows."""
    if wanted > allowed:
        raise StartError(f"FOVEA_MAX_CONTEXT_TOKENS={wanted}: the checkpoint allows {allowed}")
