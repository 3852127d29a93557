"""Image, compose file and manifests say what the code says, and linters find nothing."""

import http.server
import ipaddress
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import PREFIX, Settings, fields, variable
from tests.ops.linters import lint

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "ops" / "deploy"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
LAST_WORDS_AND_LEAVING_SECONDS = 6


def read(name: str) -> Any:
    return yaml.safe_load((DEPLOY / name).read_text(encoding="utf-8"))


@pytest.fixture
def pod() -> Any:
    return read("kubernetes/base/deployment.yaml")["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: Any) -> Any:
    return pod["containers"][0]


def environment_of(container: Any) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container["env"]}


def test_settings_that_are_named_exist() -> None:
    known = {variable(name) for _, name, _ in fields()}
    for path in filter(Path.is_file, DEPLOY.rglob("*")):
        named = set(re.findall(r"FOVEA_[A-Z_]+", path.read_text(encoding="utf-8")))
        assert named - known == set(), path


def test_probes_ask_routes_that_need_no_key(container: Any) -> None:
    paths = {
        container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    gate = (ROOT / "gateway" / "edge" / "gate.py").read_text(encoding="utf-8")
    assert paths == {"/health", "/ready"}
    assert all(f'"{path}"' in gate for path in paths)
    assert container["livenessProbe"]["httpGet"]["path"] == "/health"


def test_the_port_is_the_same_everywhere(container: Any) -> None:
    port = Settings().server.port
    assert f"EXPOSE {port}\n" in DOCKERFILE
    assert f"'FOVEA_PORT') or {port})" in DOCKERFILE
    assert container["ports"] == [{"name": "http", "containerPort": port}]
    assert environment_of(container)["FOVEA_PORT"] == str(port)
    assert read("kubernetes/base/service.yaml")["spec"]["ports"][0]["port"] == port
    assert read("compose.yaml")["services"]["fovea"]["ports"] == [f"127.0.0.1:{port}:{port}"]
    (job,) = read("prometheus.yml")["scrape_configs"]
    assert job["static_configs"][0]["targets"] == [f"fovea:{port}"]


def test_no_variable_of_the_service_is_taken_for_a_setting(pod: Any) -> None:
    assert read("kubernetes/base/service.yaml")["metadata"]["name"].upper() + "_" == PREFIX
    assert pod["enableServiceLinks"] is False


def test_the_cluster_waits_until_all_is_drained(pod: Any, container: Any) -> None:
    before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    drain = float(environment_of(container)["FOVEA_DRAIN_SECONDS"])
    assert pod["terminationGracePeriodSeconds"] > before + drain + LAST_WORDS_AND_LEAVING_SECONDS


def test_compose_waits_until_all_is_drained() -> None:
    service = read("compose.yaml")["services"]["fovea"]
    grace = float(service["stop_grace_period"].removesuffix("s"))
    drain = float(service["environment"]["FOVEA_DRAIN_SECONDS"])
    assert grace > drain + LAST_WORDS_AND_LEAVING_SECONDS


def test_the_cluster_waits_until_the_checkpoint_is_loaded(container: Any) -> None:
    probe = container["startupProbe"]
    start = float(environment_of(container)["FOVEA_START_SECONDS"])
    assert probe["periodSeconds"] * probe["failureThreshold"] > start


def test_the_selectors_find_the_pods() -> None:
    labels = read("kubernetes/base/deployment.yaml")["spec"]["template"]["metadata"]["labels"]
    assert read("kubernetes/base/service.yaml")["spec"]["selector"] == labels
    for name, key in (("disruption", "selector"), ("network", "podSelector")):
        spec = read(f"kubernetes/base/{name}.yaml")["spec"]
        assert spec[key]["matchLabels"] == labels


def test_no_private_address_is_let_out() -> None:
    blocks = [
        each["ipBlock"]
        for rule in read("kubernetes/base/network.yaml")["spec"]["egress"]
        for each in rule["to"]
        if "ipBlock" in each
    ]

    def goes_out(text: str) -> bool:
        address = ipaddress.ip_address(text)
        return any(
            address in ipaddress.ip_network(block["cidr"])
            and not any(address in ipaddress.ip_network(each) for each in block["except"])
            for block in blocks
        )

    inner = ("10.1.2.3", "127.0.0.1", "169.254.169.254", "172.20.0.1", "192.168.1.1", "100.64.0.1")
    assert not any(map(goes_out, (*inner, "::1", "fd00::1", "fe80::1", "ff02::1")))
    assert goes_out("1.1.1.1")
    assert goes_out("2606:4700::1111")


def test_each_requirement_of_serving_is_in_one_of_the_two_files(tmp_path: Path) -> None:
    done = (DEPLOY / "requirements.py", ROOT / "pyproject.toml", tmp_path / "made")
    subprocess.run([sys.executable, *map(str, done)], check=True)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pair = (tmp_path / "made" / "torch.txt").read_text(encoding="utf-8").splitlines()
    others = (tmp_path / "made" / "others.txt").read_text(encoding="utf-8").splitlines()
    assert [re.split("[<>=]", each)[0] for each in pair] == ["torch", "torchvision"]
    serving = [*project["dependencies"], *project["optional-dependencies"]["otel"]]
    assert sorted(pair + others) == sorted(serving)


def test_what_the_image_copies_reaches_the_builder() -> None:
    admitted = [
        line.removeprefix("!").removesuffix("/**")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    ]
    assert all((ROOT / each).exists() for each in admitted)
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    named = {each for sources in copied for each in sources.split()} - {"."}
    assert named == {"pyproject.toml", "ops/deploy/requirements.py"}
    assert named <= set(admitted)
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    found = packages["setuptools"]["packages"]["find"]["include"]
    assert {each.removesuffix("*") for each in found} <= set(admitted)


def stages() -> dict[str, str]:
    """The text of each stage of the Dockerfile, its FROM included, by its name."""
    parts = re.split(r"^(?=FROM )", DOCKERFILE, flags=re.MULTILINE)[1:]
    return {part.split("\n")[0].split(" AS ")[1]: part for part in parts}


def test_the_variants_are_stages_that_differ_only_in_pytorch() -> None:
    built = stages()
    assert list(built)[-1] == "cpu"  # what is built where no target is named
    service = read("compose.yaml")["services"]["fovea"]["build"]["target"]
    override = read("compose.cuda.yaml")["services"]["fovea"]["build"]["target"]
    assert (service, override) == ("cpu", "cuda")
    lines = {name: set(built[name].split("\n")) for name in (service, override)}
    differing = [line for line in lines["cpu"] ^ lines["cuda"] if not line.startswith("#")]
    marks = ("FROM bare AS ", "ARG TORCH_INDEX=", "ENV NVIDIA_", "RUN pip install")
    assert all(line.startswith(marks) for line in differing)
    assert all(
        line.endswith("--requirement /opt/fovea/torch.txt")
        for line in differing
        if line.startswith("RUN")
    )


def test_the_compiler_stays_in_the_stage_that_needs_it() -> None:
    built = stages()
    assert [name for name, text in built.items() if "gcc" in text] == ["fovea"]
    assert built["cpu"].startswith("FROM bare ")
    assert built["cuda"].startswith("FROM bare ")


@pytest.mark.parametrize("variant", ["cpu", "cuda"])
def test_a_change_of_code_makes_no_large_layer(variant: str) -> None:
    text = stages()[variant]
    assert "COPY . " not in text
    assert text.rindex("\nRUN ") < text.index("\nCOPY --from=fovea /installed /opt/fovea\n")
    assert text.rindex("\nUSER 10001:10001\n") > text.rindex("\nRUN ")


def test_signals_reach_the_gateway() -> None:
    assert '\nENTRYPOINT ["fovea"]\nCMD ["serve"]\n' in DOCKERFILE
    assert "\nSTOPSIGNAL SIGTERM\n" in DOCKERFILE


@pytest.mark.slow
@pytest.mark.parametrize(("status", "exit_status"), [(200, 0), (503, 1)])
def test_the_health_check_tells_a_gateway_that_answers(status: int, exit_status: int) -> None:
    paths = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            pass

    _, _, arguments = json.loads(DOCKERFILE.split("HEALTHCHECK")[1].split("CMD ")[1].split("\n")[0])
    with http.server.HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        done = subprocess.run(
            [sys.executable, "-c", arguments],
            env={"FOVEA_PORT": str(server.server_port)},
            check=False,
        )
        server.shutdown()
    assert (done.returncode, paths) == (exit_status, ["/health"])


@pytest.mark.slow
def test_linters_find_nothing_in_the_files() -> None:
    lint("hadolint", DEPLOY / "Dockerfile")
    lint("yamllint", "--strict", "-c", DEPLOY / ".yamllint", DEPLOY)
    schema = ("--builtin-schema", "vendor.compose-spec")
    lint("check-jsonschema", *schema, DEPLOY / "compose.yaml", DEPLOY / "compose.cuda.yaml")


@pytest.mark.slow
def test_prometheus_takes_its_file() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here")
    lint("promtool", "check", "config", "--syntax-only", DEPLOY / "prometheus.yml")


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["base", "cuda"])
def test_manifests_follow_the_schemas_of_kubernetes(variant: str, tmp_path: Path) -> None:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    whole = tmp_path / "whole.yaml"
    whole.write_text(lint("kubectl", "kustomize", DEPLOY / "kubernetes" / variant))
    lint("kubernetes-validate", "--strict", whole)
    documents = list(yaml.safe_load_all(whole.read_text()))
    assert {each["kind"] for each in documents} == {
        *("Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"),
    }
