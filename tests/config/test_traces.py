"""Where traces go, by our variable or by OpenTelemetry's."""

import re

import pytest

from config.settings import SettingsError, load_settings

OURS = "FOVEA_TRACES_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"
PROTOCOL = "OTEL_EXPORTER_OTLP_PROTOCOL"
TRACES_PROTOCOL = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
EXPORTER = "OTEL_TRACES_EXPORTER"


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, ""),
        ({ALL: "http://c:4318"}, "http://c:4318/v1/traces"),
        ({ALL: "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({ALL: "http://c:4318", TRACES: "http://t:1/x"}, "http://t:1/x"),
        ({TRACES: "http://t:1/x", OURS: "http://f:2/y"}, "http://f:2/y"),
        ({ALL: "http://c:4318", TRACES: "", OURS: ""}, "http://c:4318/v1/traces"),
        ({ALL: "http://c:4318", PROTOCOL: "http/protobuf"}, "http://c:4318/v1/traces"),
        ({ALL: "http://c:4317", PROTOCOL: "grpc", OURS: "http://f:2/y"}, "http://f:2/y"),
        ({ALL: "http://c:4317", PROTOCOL: "grpc", EXPORTER: "none"}, ""),
        ({PROTOCOL: "grpc"}, ""),
    ],
)
def test_the_most_special_variable_that_is_set_counts(
    environment: dict[str, str], endpoint: str
) -> None:
    assert load_settings(environment).server.traces_endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    [
        "collector:4318",
        "grpc://c:4317",
        "http://",
        "http://user:word@c:4318/v1/traces",
        "http://[",
        "http://c:99999/v1/traces",
    ],
)
def test_what_is_no_address_or_has_a_password_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match=OURS):
        load_settings({OURS: endpoint})


@pytest.mark.parametrize(
    "environment",
    [
        {OURS: "http://c:4317"},
        {OURS: "https://c:4317/v1/traces"},
        {ALL: "http://c:4317"},
        {TRACES: "http://c:4317"},
    ],
)
def test_the_port_of_grpc_is_refused_and_the_other_named(environment: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"4317 is for gRPC.*http://HOST:4318/v1/traces"):
        load_settings(environment)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({PROTOCOL: "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL='grpc'"),
        ({PROTOCOL: "http/json"}, "OTEL_EXPORTER_OTLP_PROTOCOL='http/json'"),
        (
            {PROTOCOL: "http/protobuf", TRACES_PROTOCOL: "grpc"},
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL='grpc'",
        ),
    ],
)
def test_a_protocol_that_is_not_spoken_is_refused(environment: dict[str, str], named: str) -> None:
    with pytest.raises(SettingsError, match=f"{named}.*http/protobuf alone"):
        load_settings({ALL: "http://c:4320"} | environment)


def test_a_refusal_names_ours_also_for_the_standard_variable() -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{OURS}='collector:4318/v1/traces'")):
        load_settings({ALL: "collector:4318"})


@pytest.mark.parametrize("name", [OURS, ALL])
def test_a_refusal_shows_no_password(name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({name: "http://user:word@collector:4318/v1/traces"})
    assert "http://...@collector:4318/v1/traces" in str(refused.value)
    assert "word@" not in str(refused.value)
