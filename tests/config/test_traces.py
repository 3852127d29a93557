"""Where traces go, by our variable or by OpenTelemetry's."""

import re

import pytest

from config.settings import SettingsError, load_settings

OURS = "FOVEA_TRACES_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
ALL = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize(
    ("environment", "endpoint"),
    [
        ({}, ""),
        ({ALL: "http://c:4318"}, "http://c:4318/v1/traces"),
        ({ALL: "https://c/otlp/"}, "https://c/otlp/v1/traces"),
        ({ALL: "http://c:4318", TRACES: "http://t:1/x"}, "http://t:1/x"),
        ({TRACES: "http://t:1/x", OURS: "http://f:2/y"}, "http://f:2/y"),
        ({ALL: "http://c:4318", TRACES: "", OURS: ""}, "http://c:4318/v1/traces"),
    ],
)
def test_the_most_special_variable_that_is_set_counts(
    environment: dict[str, str], endpoint: str
) -> None:
    assert load_settings(environment).server.traces_endpoint == endpoint


@pytest.mark.parametrize(
    "endpoint",
    ["collector:4318", "grpc://c:4317", "http://", "http://user:word@c:4318/v1/traces", "http://["],
)
def test_what_is_no_address_or_has_a_password_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match=OURS):
        load_settings({OURS: endpoint})


def test_a_refusal_names_ours_also_for_the_standard_variable() -> None:
    with pytest.raises(SettingsError, match=re.escape(f"{OURS}='collector:4318/v1/traces'")):
        load_settings({ALL: "collector:4318"})


@pytest.mark.parametrize("name", [OURS, ALL])
def test_a_refusal_shows_no_password(name: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({name: "http://user:word@collector:4318/v1/traces"})
    assert "http://...@collector:4318/v1/traces" in str(refused.value)
    assert "word@" not in str(refused.value)
