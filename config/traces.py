"""Where traces go: the FOVEA_ variable, or else what OpenTelemetry's own variables say."""

import re
from collections.abc import Mapping
from urllib.parse import urlsplit

ENDPOINT = "FOVEA_TRACES_ENDPOINT"
_TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
_ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
_PATH = "/v1/traces"
_CREDENTIALS = re.compile(r"//[^/\s]*@")


def add_endpoint(environment: Mapping[str, str]) -> dict[str, str]:
    """The same variables, with the endpoint set that OpenTelemetry's give if ours is not."""
    found = environment.get(ENDPOINT) or environment.get(_TRACES, "")
    if not found and environment.get(_ALL):
        found = environment[_ALL].rstrip("/") + _PATH
    return {**environment, ENDPOINT: found}


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
    return text
