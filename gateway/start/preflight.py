"""What is asked for against what there is, before anything is started."""

from typing import TYPE_CHECKING

from config.workers import WorkerSpec
from gateway.edge.sockets import StartError

if TYPE_CHECKING:
    from gateway.observe.spans import Spans


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


def open_spans(endpoint: str) -> "Spans | None":
    """What sends traces there; nothing if there is no endpoint.

    Raises:
        StartError: the optional packages that do it are absent.
    """
    if not endpoint:
        return None
    try:
        from gateway.observe.spans import Spans
    except ModuleNotFoundError as error:
        raise StartError(
            f"FOVEA_TRACES_ENDPOINT={endpoint}: sending traces needs {error.name}; "
            "pip install 'fovea[otel]'"
        ) from error
    return Spans(endpoint)
