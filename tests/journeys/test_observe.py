"""The dashboard and the alerts against a real run: all that they ask for is there."""

import base64
import io
import json
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from PIL import Image
from prometheus_client.parser import text_string_to_metric_families

from tests.journeys.server import Server, running

OBSERVE = Path(__file__).parent.parent.parent / "ops" / "observe"
SECRET_WORDS = "an-unlikely-word-of-the-caller"

pytestmark = pytest.mark.slow


def image(width: int, colour: str, *, whole: bool = True) -> dict[str, Any]:
    file = io.BytesIO()
    Image.new("RGB", (width, 90), colour).save(file, "PNG")
    data = file.getvalue() if whole else file.getvalue()[:-30]
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def send_traffic(server: Server) -> None:
    """An answer in one piece, a streamed one, a hit, a damaged image, a mistake, a refusal."""
    say = {"type": "text", "text": SECRET_WORDS}
    images = [image(120, "red"), image(150, "blue"), image(120, "red")]
    for one in images:
        chat(server, [one, say])
    chat(server, [say], stream=True, ignore_eos=True, max_tokens=8)
    assert chat(server, [image(80, "green", whole=False), say]).status_code == 400
    assert server.post({"model": server.model, "messages": []}).status_code == 400


def chat(server: Server, content: list[Any], **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": content}]
    body = {"model": server.model, "messages": messages, "max_tokens": 3, **fields}
    return server.post(body)


@pytest.fixture(scope="module")
def observed() -> Iterator[Server]:
    with running(workers="cpu:vision,cpu:language", log_format="json") as server:
        send_traffic(server)
        yield server


def panels() -> list[tuple[str, str]]:
    """Titles and queries, with what Grafana puts in place of variables."""
    board = json.loads((OBSERVE / "dashboard.json").read_text())
    assert len({panel["title"] for panel in board["panels"]}) == len(board["panels"])
    return [
        (panel["title"], re.sub(r"\$(job|instance)", ".*", target["expr"]))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def names(text: str) -> set[str]:
    return set(re.findall(r"\b(?:fovea|process)_[a-z_]+\b", text))


def test_every_name_in_dashboard_and_alerts_is_shown_by_a_gateway(observed: Server) -> None:
    families = text_string_to_metric_families(httpx.get(f"{observed.url}/metrics").text)
    shown = {sample.name for family in families for sample in family.samples}
    asked = names(" ".join(query for _, query in panels()))
    assert len(asked) > 40
    assert asked <= shown
    assert names(" ".join(_exprs())) <= shown


def _exprs() -> list[str]:
    lines = (OBSERVE / "alerts.yml").read_text().split("- alert:")[1:]
    return [one.split("expr:")[1].split("labels:")[0] for one in lines]


def test_the_dashboard_leaves_out_no_metric_of_ours(observed: Server) -> None:
    families = text_string_to_metric_families(httpx.get(f"{observed.url}/metrics").text)
    ours = {family.name for family in families if family.name.startswith("fovea_")}
    queries = " ".join(query for _, query in panels())
    assert {name for name in ours if not re.search(rf"\b{name}", queries)} == set()


def test_an_engine_that_is_idle_now_and_then_shows_what_it_runs(observed: Server) -> None:
    say = [{"type": "text", "text": "Count."}]
    answers = (chat(observed, say, ignore_eos=True, max_tokens=25) for _ in range(40))
    asking = threading.Thread(target=lambda: [answer.status_code for answer in answers])
    asking.start()
    seen = []
    with httpx.Client() as client:
        while asking.is_alive():
            text = client.get(f"{observed.url}/metrics").text
            seen += re.findall(r'^fovea_worker_running{worker="worker-1"} (.*)', text, re.MULTILINE)
    assert seen.count("1.0") >= 5  # how often depends on who gets the cores; it was never


def test_a_request_leaves_one_line_with_its_id_stages_and_code(observed: Server) -> None:
    headers = {"x-request-id": "watched-1"}
    body = {
        "model": observed.model,
        "max_tokens": 2,
        "messages": [{"role": "user", "content": [image(210, "navy")]}],
    }
    url = f"{observed.url}/v1/chat/completions"
    answer = httpx.post(url, json=body, headers=headers, timeout=60)
    assert answer.headers["x-request-id"] == "watched-1"
    (line,) = lines_of(observed, "watched-1")
    assert (line["status"], line["code"]) == (200, "")
    assert line["usage"]["prompt_tokens"] == answer.json()["usage"]["prompt_tokens"]
    wanted = "parse fetch header tokenise place decode preprocess encode transfer prefill generate"
    assert set(wanted.split()) <= line["stages"].keys()
    assert 0 < sum(line["stages"].values()) <= line["seconds"]

    refused = httpx.post(url, json={**body, "top_p": 7}, headers={"x-request-id": "watched-2"})
    (line,) = lines_of(observed, "watched-2")
    assert (line["status"], line["code"]) == (400, refused.json()["error"]["code"])
    assert line["stages"].keys() == {"parse"}


def lines_of(server: Server, request_id: str, seconds: float = 5) -> list[dict[str, Any]]:
    """The lines that carry this id, once there is one."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        objects = [json.loads(line) for line in server.lines if line.startswith("{")]
        if found := [one for one in objects if one.get("request_id") == request_id]:
            return found
        time.sleep(0.02)
    return []


def test_every_line_of_every_process_is_an_object_and_tells_nothing_of_prompts(
    observed: Server,
) -> None:
    told = [line for line in observed.lines if not line.startswith("Fovea is ready")]
    objects = [json.loads(line) for line in told]
    assert "gateway" in {one["process"] for one in objects}
    assert SECRET_WORDS not in "".join(told)


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """A real Prometheus that scrapes the target each second; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = (OBSERVE / "prometheus.yml").read_text()
    config = config.replace("127.0.0.1:8000", target).replace(": 10s", ": 1s")
    (folder / "prometheus.yml").write_text(config)
    (folder / "alerts.yml").write_text((OBSERVE / "alerts.yml").read_text())
    command = ["prometheus", f"--config.file={folder / 'prometheus.yml'}"]
    command += [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def ask(url: str, query: str) -> list[Any]:
    query = query.replace("$__rate_interval", "1m")
    answer = httpx.get(f"{url}/api/v1/query", params={"query": query})
    assert answer.status_code == 200, (query, answer.text)
    found: list[Any] = answer.json()["data"]["result"]
    return found


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="there is no Prometheus")
def test_every_panel_has_data_in_a_real_prometheus(observed: Server, tmp_path: Path) -> None:
    with prometheus(tmp_path, observed.url.removeprefix("http://")) as url:
        limit = time.monotonic() + 30
        while not _is_scraped(url):
            assert time.monotonic() < limit, "Prometheus scraped nothing"
            time.sleep(0.2)
        send_traffic(observed)
        while empty := _empty_panels(url):  # rates take two scrapes
            assert time.monotonic() < limit + 30, empty
            time.sleep(1)
        rules = httpx.get(f"{url}/api/v1/rules").json()["data"]["groups"][0]["rules"]
        assert {(rule["name"], rule["health"]) for rule in rules} == {
            (rule["name"], "ok") for rule in rules
        }
        assert [rule["name"] for rule in rules if rule["alerts"]] == []


def _empty_panels(url: str) -> set[str]:
    return {title for title, query in panels() if not ask(url, query)}


def _is_scraped(url: str) -> bool:
    try:
        return bool(ask(url, "fovea_ready"))
    except httpx.TransportError:
        return False
