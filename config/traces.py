"""Where traces go: the FOVEA_ variable, or else what OpenTelemetry's own variables say."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

ENDPOINT = "FOVEA_TRACES_ENDPOINT"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
_EXPORTER = "OTEL_TRACES_EXPORTER"
_TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
_PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
_SPOKEN = "http/protobuf"
_PATH = "/v1/traces"
_GRPC_PORT = 4317  # registered for it; whoever listens there understands no HTTP/1.1
_CREDENTIALS = re.compile(r"//[^/\s]*@")


def add_endpoint(environment: Mapping[str, str]) -> dict[str, str]:
    """The same variables, with the endpoint set that OpenTelemetry's give if ours is not.

    Raises:
        ValueError: OpenTelemetry's ask for another protocol than the one there is.
    """
    found = environment.get(ENDPOINT, "") or _standard_endpoint(environment)
    return {**environment, ENDPOINT: found}


def _standard_endpoint(environment: Mapping[str, str]) -> str:
    found = environment.get(_TRACES, "")
    if not found and environment.get(_ALL):
        found = environment[_ALL].rstrip("/") + _PATH
    if not found or environment.get(_EXPORTER, "").strip().lower() == "none":
        return ""
    name = _TRACES_PROTOCOL if environment.get(_TRACES_PROTOCOL) else _PROTOCOL
    if (protocol := environment.get(name)) and protocol != _SPOKEN:
        raise ValueError(
            f"{name}={protocol!r}: traces are sent by {_SPOKEN} alone; set {ENDPOINT} to where "
            f"that is taken, or {_EXPORTER}=none"
        )
    return found


def without_password(text: str) -> str:
    """The text, with dots for what stands before the host of an address in it."""
    return _CREDENTIALS.sub("//...@", text)


def check_endpoint(text: str) -> str:
    """The text again, if it is empty or an address that traces can be posted to.

    Raises:
        ValueError: it is not, or it has a password in it, which would be shown in listings.
    """
    if not text:
        return text
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("not of the form http://HOST:PORT/v1/traces")
    if "@" in parts.netloc:
        raise ValueError("passwords belong into OTEL_EXPORTER_OTLP_HEADERS")
    if parts.port == _GRPC_PORT:
        raise ValueError(
            f"port {_GRPC_PORT} is for gRPC, which is not spoken here; collectors take {_SPOKEN} "
            f"at port 4318, http://HOST:4318{_PATH}"
        )
    return text
