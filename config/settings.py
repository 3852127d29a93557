"""Environment variables with the prefix FOVEA_ in, one frozen `Settings` out."""

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from config.compute import EngineSettings, VisionSettings
from config.domains import parse_domains
from config.limits import ClientSettings, LimitSettings
from config.logs import LogFormat
from config.section import Section
from config.traces import add_endpoint, check_endpoint, without_password
from config.workers import WorkerSpec, parse_workers

PREFIX = "FOVEA_"
DEMO_MODEL = Path(__file__).parent.parent / "workers" / "demo_model"
MEBIBYTE = 1 << 20


class SettingsError(Exception):
    """A setting that cannot be honoured; the message names it, the value and what is allowed."""


def _check_workers(text: str) -> str:
    parse_workers(text)
    return text


def _check_domains(text: str) -> str:
    parse_domains(text)
    return text


def _check_folder(text: str) -> str:
    folder = Path(text)
    if text and (not folder.is_absolute() or ".." in folder.parts or not folder.is_dir()):
        raise ValueError("not the absolute path of a folder")
    return text


class ServerSettings(Section):
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    served_model_name: str = Field(
        "", description="Name in /v1/models and responses; empty: the checkpoint folder's name."
    )
    api_keys_file: str = Field(
        "",
        description=(
            "File of API keys that are let in, see `fovea key`; read again when it changes. "
            "Empty: everybody is."
        ),
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least severe log line that is written."
    )
    log_format: LogFormat = Field(
        "text", description="Form of log lines: text for people, json for machines."
    )
    serving_names: bool = Field(
        True, description="Show metrics also by vLLM's names, for dashboards that are there."
    )
    traces_endpoint: Annotated[str, AfterValidator(check_endpoint)] = Field(
        "",
        description=(
            "Where OpenTelemetry traces are sent, http://HOST:4318/v1/traces; empty: where "
            "OTEL_EXPORTER_OTLP_ENDPOINT says, or else there are none. Needs `fovea[otel]`."
        ),
    )
    max_body_bytes: int = Field(
        64 * MEBIBYTE, ge=1024, description="Largest request body, in bytes."
    )
    max_running_requests: int = Field(
        256,
        ge=1,
        description=(
            "Requests in work at once, each counted once for every choice; more are refused with "
            "429."
        ),
    )
    max_bytes_in_flight: int = Field(
        512 * MEBIBYTE,
        ge=MEBIBYTE,
        description=(
            "Bytes of bodies and encoded images held by all requests, less 64 KiB for each; more "
            "is a 429."
        ),
    )
    body_seconds: float = Field(
        60.0, gt=0, description="Time a client gets to send its request body, in seconds; then 408."
    )
    request_seconds: float = Field(
        600.0, gt=0, description="Time limit of one request, in seconds; then 504."
    )
    drain_seconds: float = Field(
        30.0,
        ge=0,
        description="Time that running requests get after SIGTERM or Ctrl-C, in seconds.",
    )


class ModelSettings(Section):
    model: Path = Field(
        DEMO_MODEL, description="Checkpoint folder in Hugging Face form; default: the demo model."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Compute type; auto: float32 on a CPU, the checkpoint's own on a GPU."
    )
    max_context_tokens: int = Field(
        0, ge=0, description="Longest prompt plus answer, in tokens; 0: what the checkpoint allows."
    )


class WorkerSettings(Section):
    workers: Annotated[str, AfterValidator(_check_workers)] = Field(
        "auto",
        description=(
            "Worker processes, comma separated, each DEVICE:ROLE[+ROLE] (cpu:vision+language, "
            "cuda:0:vision); auto: one per GPU with both roles, without a GPU one on the CPU."
        ),
    )
    threads_per_worker: int = Field(
        0, ge=0, description="CPU threads of each worker; 0: the cores shared out evenly."
    )
    arena_bytes: int = Field(
        1024 * MEBIBYTE,
        ge=MEBIBYTE,
        description="Shared memory per worker for pixels and embeddings, in bytes; used as needed.",
    )
    feature_transport: Literal["auto", "cpu", "cuda_ipc"] = Field(
        "auto",
        description=(
            "How embeddings reach engines: cpu, through shared memory; cuda_ipc, through memory of "
            "the owner's GPU; auto: cuda_ipc where all workers can, else cpu."
        ),
    )
    feature_pool_bytes: int = Field(
        1024 * MEBIBYTE,
        ge=MEBIBYTE,
        description="Memory of each vision GPU that holds embeddings with cuda_ipc, in bytes.",
    )
    start_seconds: float = Field(
        600.0, gt=0, description="Time a worker gets to load the checkpoint, in seconds."
    )
    restart_seconds: float = Field(
        0.5, gt=0, description="First wait before a lost worker is started again; doubles to 30."
    )
    silent_seconds: float = Field(
        20.0,
        gt=0,
        description=(
            "Time without a sign of life after which a worker is taken for stuck and replaced, in "
            "seconds. Signs come from a thread of its own, also during a long pass of a model."
        ),
    )
    turn_seconds: float = Field(
        300.0,
        gt=0,
        description=(
            "Time for one batch of images and one step of the engine after which a worker is taken "
            "for stuck and replaced, in seconds."
        ),
    )
    fence_seconds: float = Field(
        300.0,
        ge=0,
        description=(
            "Time for which a prompt or an image is refused after it was by itself when a worker "
            "died, and there at an earlier death, in seconds; a tenth of it at first where the "
            "worker was killed from outside."
        ),
    )


class ImageSettings(Section):
    max_images: int = Field(64, ge=0, description="Images in one request.")
    max_image_bytes: int = Field(
        20 * MEBIBYTE, ge=1024, description="Size of one encoded image, in bytes."
    )
    max_image_pixels: int = Field(
        64_000_000, ge=1, description="Width times height of one image, in pixels."
    )
    max_image_side: int = Field(16_384, ge=1, description="Longer side of one image, in pixels.")
    max_resized_pixels: int = Field(
        0,
        ge=0,
        description=(
            "Pixels that an image keeps for the model, whatever the caller asks for; "
            "0: what the checkpoint allows."
        ),
    )
    low_detail_pixels: int = Field(
        262_144, ge=1, description="Pixels that an image with detail low keeps for the model."
    )
    allow_tensor_inputs: bool = Field(
        False, description="Take patches and embeddings from callers in place of images."
    )
    max_tensor_bytes: int = Field(
        48 * MEBIBYTE, ge=1024, description="Size of one image's file of tensors, in bytes."
    )
    decode_threads: int = Field(
        0, ge=0, description="Threads that decode images in the gateway; 0: one per core."
    )
    force_cpu_image_preprocessing: bool = Field(
        False,
        description="Decode and preprocess on the CPU, in the gateway, whatever the workers.",
    )
    fetch_seconds: float = Field(
        10.0, gt=0, description="Total time to fetch one image, redirects included, in seconds."
    )
    fetch_redirects: int = Field(3, ge=0, le=20, description="Redirects followed per image.")
    fetch_connections: int = Field(64, ge=1, description="Connections to image hosts at once.")
    media_allowed_domains: Annotated[str, AfterValidator(_check_domains)] = Field(
        "",
        description=(
            "Hosts that images may come from, comma separated; *.b.example stands for all below "
            "b.example, not for itself; empty: all."
        ),
    )
    media_allow_private: bool = Field(
        False,
        description="Fetch from addresses outside the public internet too: this machine, its nets.",
    )
    media_folder: Annotated[str, AfterValidator(_check_folder)] = Field(
        "", description="Folder below which file: addresses are read; empty: none is."
    )


class Settings(Section):
    """Everything that can be set, read once at start and passed in by section."""

    server: ServerSettings = ServerSettings()
    limits: LimitSettings = LimitSettings()
    clients: ClientSettings = ClientSettings()
    model: ModelSettings = ModelSettings()
    workers: WorkerSettings = WorkerSettings()
    images: ImageSettings = ImageSettings()
    vision: VisionSettings = VisionSettings()
    engine: EngineSettings = EngineSettings()

    def worker_specs(self, num_gpus: int) -> tuple[WorkerSpec, ...]:
        """The workers to start, with `auto` resolved for `num_gpus` visible CUDA devices."""
        return parse_workers(self.workers.workers, num_gpus)


def fields() -> Iterator[tuple[str, str, FieldInfo]]:
    """Every setting as (section, field name, pydantic field), in the order of the table."""
    for section, info in Settings.model_fields.items():
        section_class = info.annotation
        assert isinstance(section_class, type)
        assert issubclass(section_class, Section)
        for name, field in section_class.model_fields.items():
            yield section, name, field


def variable(name: str) -> str:
    """The environment variable of a field name."""
    return PREFIX + name.upper()


def _refuse_unknown(environment: Mapping[str, str], known: list[str]) -> None:
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "`fovea config` lists them all"
            raise SettingsError(f"unknown setting {name}; {hint}")


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables.

    Raises:
        SettingsError: a FOVEA_ variable is unknown, or its value is not allowed.
    """
    _refuse_unknown(environment, [variable(name) for _, name, _ in fields()])
    try:
        environment = add_endpoint(environment)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    values: dict[str, dict[str, Any]] = {}
    for section, name, _ in fields():
        if environment.get(variable(name)):  # an empty one counts as not set
            values.setdefault(section, {})[name] = environment[variable(name)]
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        name = variable(str(first["loc"][-1]))
        reason = first["msg"].removeprefix("Value error, ")
        told = without_password(environment[name])
        raise SettingsError(f"{name}={told!r}: {reason}") from error
