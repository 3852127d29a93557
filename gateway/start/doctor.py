"""Environment and machine in, what will work and what will not out; nothing is started."""

import importlib.metadata
import resource
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from config.settings import PREFIX, Settings, SettingsError, load_settings
from config.workers import WorkerSpec
from gateway.edge.key_ring import KeyRing
from gateway.edge.keys import KeyFileError
from gateway.edge.sockets import StartError, listen
from gateway.prompts.checkpoint import load_checkpoint
from gateway.start.findings import Finding, Level
from gateway.start.need import Weights, weigh
from gateway.start.packages import check_compiled, check_extras, check_versions, is_for_cpu
from gateway.start.preflight import check_context, check_devices, open_spans
from gateway.start.weights import check_weights
from workers.arena import Arena
from workers.devices import can_reach, count_gpus, device_bytes
from workers.families import UnsupportedCheckpoint, family_of
from workers.machine import available_bytes
from workers.transport import TransportError, choose_transport

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_MEBIBYTE = 1 << 20
_FULL_SHARE = 0.8  # of memory; the KV cache, activations and images want some beside the weights
_OWN_FILES = 64  # logs, libraries, event loops
_FILES_PER_WORKER = 4
_CONNECTION_SHARE = 0.75  # as the server keeps it


def _file_limit() -> int:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard


@dataclass(frozen=True, slots=True)
class Machine:
    """How the checks ask the machine; tests of devices that are not there answer themselves."""

    count_gpus: Callable[[], int] = count_gpus
    device_bytes: Callable[[int], int | None] = device_bytes
    can_reach: Callable[[int, int], bool] = can_reach
    available_bytes: Callable[[], int | None] = available_bytes
    file_limit: Callable[[], int] = _file_limit
    version_of: Callable[[str], str] = importlib.metadata.version


def examine(environment: Mapping[str, str], machine: Machine | None = None) -> Iterator[Finding]:
    """Look at everything that a start needs, without workers and without loading weights."""
    machine = machine or Machine()
    yield from check_versions(machine.version_of)
    yield from check_extras(machine.version_of)
    try:
        settings = load_settings(environment)
    except SettingsError as error:
        yield Finding("failure", "settings", f"{error}; the other checks need the settings")
        return
    yield from _list_settings(environment)
    num_gpus = machine.count_gpus()
    specs = settings.worker_specs(num_gpus)
    devices = list(_check_devices(specs, num_gpus, machine))
    yield from devices
    if any(finding.level == "failure" for finding in devices):
        specs = ()  # nothing can be said of what they would do there
    else:
        yield from _check_transport(settings, specs, machine)
        yield from check_compiled(settings, specs)
    yield from _check_checkpoint(settings, specs, machine)
    num_workers = len(settings.worker_specs(num_gpus))
    yield from _check_arenas(settings, num_workers)
    yield from _check_files(settings, num_workers, machine.file_limit())
    yield from _check_door(settings)
    yield from _check_traces(settings.server.traces_endpoint)


def report(findings: Iterable[Finding], write: Callable[[str], object]) -> int:
    """Write each line as it is found, and the sum of them; 1 if something failed, else 0."""
    counts: dict[Level, int] = {"ok": 0, "warning": 0, "failure": 0}
    for finding in findings:
        counts[finding.level] += 1
        write(f"{finding}\n")
    verdict = "cannot serve like this" if counts["failure"] else "can serve"
    write(f"failures: {counts['failure']}, warnings: {counts['warning']}; Fovea {verdict}\n")
    return 1 if counts["failure"] else 0


def _list_settings(environment: Mapping[str, str]) -> Iterator[Finding]:
    names = sorted(name for name in environment if name.startswith(PREFIX))
    for name in names:
        value = environment[name]
        text = f"{name}={value}" if value else f"{name} is empty, which counts as not set"
        yield Finding("ok", "settings", text)
    if not names:
        yield Finding("ok", "settings", "none is set: all defaults, see `fovea config`")


def _check_devices(
    specs: tuple[WorkerSpec, ...], num_gpus: int, machine: Machine
) -> Iterator[Finding]:
    try:
        check_devices(specs, num_gpus)
    except StartError as error:
        advice = "name others, or look at nvidia-smi, CUDA_VISIBLE_DEVICES and the container"
        yield Finding("failure", "devices", f"{error}; {advice}")
        return
    for spec in specs:
        yield Finding("ok", "devices", f"{spec.name} on {spec.device}: {' and '.join(spec.roles)}")
    if any(spec.device != "cpu" for spec in specs) and is_for_cpu(machine.version_of):
        advice = "install torch and torchvision for CUDA"
        yield Finding("failure", "devices", f"the installed torch is for CPUs only; {advice}")
    if num_gpus and all(spec.device == "cpu" for spec in specs):
        advice = f"FOVEA_WORKERS uses none of {num_gpus} CUDA devices; auto would"
        yield Finding("warning", "devices", advice)


def _check_transport(
    settings: Settings, specs: tuple[WorkerSpec, ...], machine: Machine
) -> Iterator[Finding]:
    wanted = settings.workers.feature_transport
    try:
        transport = choose_transport(wanted, specs, machine.can_reach)
    except TransportError as error:
        yield Finding("failure", "transport", f"{error}; auto or cpu works")
        return
    yield Finding("ok", "transport", f"embeddings travel by {transport} (asked for: {wanted})")


def _check_checkpoint(
    settings: Settings, specs: tuple[WorkerSpec, ...], machine: Machine
) -> Iterator[Finding]:
    model = settings.model.model
    try:
        layout = load_checkpoint(model).layout
        check_weights(model)
        check_context(settings.model.max_context_tokens, layout.max_context_tokens)
    except (StartError, UnsupportedCheckpoint) as error:
        yield Finding("failure", "checkpoint", str(error))
        return
    weights = weigh(model)
    millions = sum(weights.num_values.values()) / 1e6
    stored = sum(weights.num_bytes.values()) / _MEBIBYTE
    yield Finding(
        "ok",
        "checkpoint",
        f"{model.resolve().name}: family {family_of(model)}, {millions:.1f} million weights in "
        f"{stored:.0f} MiB of {', '.join(weights.dtypes)}, all there; context of "
        f"{settings.model.max_context_tokens or layout.max_context_tokens} tokens",
    )
    yield from _check_memory(settings.model.dtype, weights, specs, machine)


def _check_memory(
    dtype: str, weights: Weights, specs: tuple[WorkerSpec, ...], machine: Machine
) -> Iterator[Finding]:
    needs: dict[str, int] = {}
    for spec in specs:
        needs[spec.device] = needs.get(spec.device, 0) + weights.bytes_on(spec, dtype)
    for device, need in needs.items():
        number = int(device.partition(":")[2] or 0)
        have = machine.available_bytes() if device == "cpu" else machine.device_bytes(number)
        yield _judge_memory(device, need, have)


def _judge_memory(device: str, need: int, have: int | None) -> Finding:
    wants = f"weights on {device} take {need / _MEBIBYTE:.0f} MiB"
    if have is None:
        return Finding("warning", "memory", f"{wants}; how much is there, the system does not say")
    text = f"{wants} of {have / _MEBIBYTE:.0f} MiB"
    if need > have:
        advice = "use fewer workers there, FOVEA_DTYPE=bfloat16, or a smaller checkpoint"
        return Finding("failure", "memory", f"{text}; {advice}")
    if need > have * _FULL_SHARE:
        advice = "little is left for the KV cache and images; expect small batches and 429"
        return Finding("warning", "memory", f"{text}; {advice}")
    return Finding("ok", "memory", text)


def _check_arenas(settings: Settings, num_workers: int) -> Iterator[Finding]:
    """Shared memory is set up and let go of again, which costs none as long as none is used."""
    num_bytes = settings.workers.arena_bytes
    arenas: list[Arena] = []
    try:
        arenas += [Arena(index, num_bytes) for index in range(num_workers)]
    except (OSError, OverflowError) as error:
        reason = f"cannot set up so much shared memory for each of {num_workers} workers ({error})"
        yield Finding("failure", "limits", f"FOVEA_ARENA_BYTES={num_bytes}: {reason}; set less")
    else:
        size = f"{num_workers} x {num_bytes // _MEBIBYTE} MiB"
        yield Finding("ok", "limits", f"shared memory of {size} can be had, and is used as needed")
    finally:
        for arena in arenas:
            arena.close()


def _check_files(settings: Settings, num_workers: int, limit: int) -> Iterator[Finding]:
    other = settings.images.fetch_connections + _FILES_PER_WORKER * num_workers + _OWN_FILES
    room = min(int(limit * _CONNECTION_SHARE), limit - other)
    advice = "raise the hard limit (ulimit -Hn, LimitNOFILE, ulimits of the container)"
    text = f"{limit} open files are allowed, which leaves {max(0, room)} connections"
    if room < settings.server.max_running_requests:
        least = f"less than FOVEA_MAX_RUNNING_REQUESTS={settings.server.max_running_requests}"
        yield Finding("failure", "limits", f"{text}, {least}; {advice}")
    elif room < settings.clients.max_connections:
        wanted = f"of FOVEA_MAX_CONNECTIONS={settings.clients.max_connections}"
        yield Finding("warning", "limits", f"{text} {wanted}; {advice}")
    else:
        yield Finding("ok", "limits", text)


def _check_door(settings: Settings) -> Iterator[Finding]:
    """The port is taken for a moment and given back; keys are read."""
    server = settings.server
    try:
        listen(server).close()
        yield Finding("ok", "port", f"{server.host} port {server.port or 'of the system'} is free")
    except StartError as error:
        yield Finding("failure", "port", str(error))
    if server.api_keys_file:
        try:
            KeyRing(Path(server.api_keys_file))
            yield Finding("ok", "keys", f"{server.api_keys_file} can be read")
        except KeyFileError as error:
            yield Finding("failure", "keys", f"FOVEA_API_KEYS_FILE: {error}; see `fovea key`")
    elif server.host not in _LOOPBACK:
        advice = "set FOVEA_API_KEYS_FILE, or let a proxy guard the port"
        yield Finding("warning", "keys", f"whoever reaches {server.host} is let in; {advice}")


def _check_traces(endpoint: str) -> Iterator[Finding]:
    try:
        spans = open_spans(endpoint)
    except StartError as error:
        yield Finding("failure", "traces", str(error))
        return
    if spans is not None:
        spans.close(0)
        yield Finding("ok", "traces", f"each request's will be sent to {endpoint}")
