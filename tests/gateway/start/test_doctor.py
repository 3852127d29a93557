"""The doctor finds what would stop a start or spoil it, each under real conditions."""

import importlib.metadata
import json
import shutil
import socket
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from config.settings import DEMO_MODEL
from gateway.start.doctor import Machine, examine, report
from gateway.start.findings import Finding
from gateway.start.need import weigh

GIBIBYTE = 1 << 30
FREE = {"FOVEA_PORT": "0", "FOVEA_WORKERS": "cpu:vision+language"}


def faults(environment: dict[str, str], machine: Machine | None = None) -> list[Finding]:
    """What is not well with these settings beside a free port and one worker on the CPU."""
    machine = machine or Machine(file_limit=lambda: 1 << 20)
    return [each for each in examine(FREE | environment, machine) if each.level != "ok"]


def the_fault(environment: dict[str, str], machine: Machine | None = None) -> Finding:
    (fault,) = faults(environment, machine)
    return fault


def test_nothing_is_wrong_with_the_model_that_ships_here() -> None:
    assert faults({}) == []


def test_every_topic_is_looked_at() -> None:
    topics = {each.topic for each in examine(FREE)}
    assert topics >= {
        *("versions", "settings", "devices", "transport", "checkpoint", "memory"),
        *("limits", "port"),
    }


def test_settings_that_are_set_are_listed_with_their_values() -> None:
    texts = [each.text for each in examine(FREE) if each.topic == "settings"]
    assert texts == ["FOVEA_PORT=0", "FOVEA_WORKERS=cpu:vision+language"]


def test_an_unknown_setting_is_a_failure_with_the_name_it_may_mean() -> None:
    fault = the_fault({"FOVEA_PROT": "9000"})
    assert (fault.level, fault.topic) == ("failure", "settings")
    assert "FOVEA_PORT" in fault.text


def test_a_port_that_is_taken_is_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        fault = the_fault({"FOVEA_PORT": str(port)})
    assert (fault.level, fault.topic) == ("failure", "port")
    assert f"port {port}" in fault.text


def test_the_port_is_free_again_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
    assert faults({"FOVEA_PORT": str(port)}) == []
    socket.create_server(("127.0.0.1", port)).close()


def test_a_checkpoint_that_is_cut_off_is_a_failure(tmp_path: Path) -> None:
    model = shutil.copytree(DEMO_MODEL, tmp_path / "cut")
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1000])
    fault = the_fault({"FOVEA_MODEL": str(model)})
    assert (fault.level, fault.topic) == ("failure", "checkpoint")
    assert "download the file again" in fault.text


def test_a_folder_that_is_not_there_is_a_failure(tmp_path: Path) -> None:
    fault = the_fault({"FOVEA_MODEL": str(tmp_path / "nowhere")})
    assert (fault.level, fault.topic) == ("failure", "checkpoint")


def test_more_context_than_the_checkpoint_has_is_a_failure() -> None:
    fault = the_fault({"FOVEA_MAX_CONTEXT_TOKENS": "100000"})
    assert (fault.level, fault.topic) == ("failure", "checkpoint")


def test_a_device_that_is_not_there_is_a_failure() -> None:
    fault = the_fault({"FOVEA_WORKERS": "cuda:63:vision+language"})
    assert (fault.level, fault.topic) == ("failure", "devices")
    assert "cuda:63" in fault.text


def test_devices_that_nobody_uses_are_a_warning() -> None:
    machine = Machine(count_gpus=lambda: 2, file_limit=lambda: 1 << 20)
    fault = the_fault({}, machine)
    assert (fault.level, fault.topic) == ("warning", "devices")


def test_a_torch_without_cuda_is_a_failure_for_a_worker_with_a_gpu() -> None:
    versions = {"torch": "2.14.1+cpu", "torchvision": "0.29.1+cpu"}
    machine = Machine(
        count_gpus=lambda: 1,
        device_bytes=lambda device: 80 * GIBIBYTE,
        file_limit=lambda: 1 << 20,
        version_of=lambda name: versions.get(name) or importlib.metadata.version(name),
    )
    fault = the_fault({"FOVEA_WORKERS": "cuda:0:vision+language"}, machine)
    assert (fault.level, fault.topic) == ("failure", "devices")
    assert "CPUs only" in fault.text


def test_a_transport_that_cannot_be_had_is_a_failure() -> None:
    fault = the_fault({"FOVEA_FEATURE_TRANSPORT": "cuda_ipc"})
    assert (fault.level, fault.topic) == ("failure", "transport")


@pytest.mark.slow
def test_attention_in_c_is_looked_for_where_it_would_be_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    half = {"FOVEA_DTYPE": "bfloat16"}
    monkeypatch.setattr("workers.native.library.load", lambda: None)
    (used,) = (each.text for each in examine(FREE | half) if each.topic == "compiled")
    (unused,) = (each.text for each in examine(FREE) if each.topic == "compiled")
    assert "FOVEA_DTYPE" in unused.removeprefix(used)
    monkeypatch.undo()
    monkeypatch.setattr("workers.native.library.__file__", str(tmp_path / "library.py"))
    assert faults({}) == []
    fault = the_fault(half)
    assert (fault.level, fault.topic) == ("warning", "compiled")
    assert "compiler" in fault.text
    assert the_fault(half | {"FOVEA_ATTENTION": "native"}).level == "failure"


@pytest.mark.parametrize(("limit", "level"), [(300, "failure"), (2000, "warning")])
def test_too_few_open_files_are_told(limit: int, level: str) -> None:
    """The limit is the real one of a process of its own, because it cannot be raised again."""
    script = (
        "import resource, sys; from gateway.__main__ import main; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, {limit})); "
        "sys.argv[1:] = ['doctor']; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=dict(FREE), capture_output=True, text=True, check=False
    )
    assert f"{level:<8} limits      {limit} open files" in done.stdout
    assert done.returncode == (level == "failure")


@pytest.mark.parametrize("num_bytes", [1 << 62, 10**30])
def test_shared_memory_that_cannot_be_had_is_a_failure(num_bytes: int) -> None:
    fault = the_fault({"FOVEA_ARENA_BYTES": str(num_bytes)})
    assert (fault.level, fault.topic) == ("failure", "limits")


@pytest.mark.parametrize(("mebibytes", "level"), [(20, "failure"), (25, "warning")])
def test_memory_that_the_weights_do_not_fit_is_told(mebibytes: int, level: str) -> None:
    machine = Machine(available_bytes=lambda: mebibytes << 20, file_limit=lambda: 1 << 20)
    fault = the_fault({}, machine)
    assert (fault.level, fault.topic) == (level, "memory")


def test_keys_that_cannot_be_read_are_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("nonsense")
    fault = the_fault({"FOVEA_API_KEYS_FILE": str(file)})
    assert (fault.level, fault.topic) == ("failure", "keys")


def test_a_door_that_is_open_to_all_is_a_warning() -> None:
    fault = the_fault({"FOVEA_HOST": "0.0.0.0"})
    assert (fault.level, fault.topic) == ("warning", "keys")


def test_versions_that_are_no_pair_are_a_failure() -> None:
    versions = {"torch": "2.14.1", "torchvision": "0.28.0"}

    def version_of(package: str) -> str:
        if package in versions:
            return versions[package]
        raise PackageNotFoundError(package)

    machine = Machine(version_of=version_of, file_limit=lambda: 1 << 20)
    fault = the_fault({}, machine)
    assert (fault.level, fault.topic) == ("failure", "versions")


def test_the_status_is_one_only_where_something_fails() -> None:
    lines: list[str] = []
    well, doubtful = Finding("ok", "x", "y"), Finding("warning", "x", "y")
    ill = Finding("failure", "x", "y")
    assert report([well, doubtful], lines.append) == 0
    assert report([well, ill], lines.append) == 1
    assert lines[-1].startswith("failures: 1, warnings: 0;")


def test_weights_are_counted_as_the_head_of_their_file_has_them() -> None:
    data = (DEMO_MODEL / "model.safetensors").read_bytes()
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    spans = {name: each["data_offsets"] for name, each in head.items() if name != "__metadata__"}
    vision = sum(end - start for name, (start, end) in spans.items() if "visual" in name)
    total = sum(end - start for start, end in spans.values())
    assert weigh(DEMO_MODEL).num_bytes == {"vision": vision, "language": total - vision}
    assert weigh(DEMO_MODEL).num_values["vision"] == vision // 2  # bfloat16


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4317"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:9", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
    ],
)
def test_traces_by_grpc_are_a_failure(environment: dict[str, str]) -> None:
    fault = the_fault(environment)
    assert (fault.level, fault.topic) == ("failure", "settings")
    assert "grpc" in fault.text.lower()


def test_where_traces_go_is_told_and_whether_they_can(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = FREE | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    (finding,) = (each for each in examine(environment) if each.topic == "traces")
    assert finding.level == "ok"
    assert "http://127.0.0.1:4318/v1/traces" in finding.text
    monkeypatch.delitem(sys.modules, "gateway.observe.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    (finding,) = (each for each in examine(environment) if each.topic == "traces")
    assert finding.level == "failure"
    assert "fovea[otel]" in finding.text
