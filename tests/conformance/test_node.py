"""The official Node client, where node and npm are there; its package comes from the registry."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.journeys.pupils import Pupil
from tests.journeys.server import Server
from tests.pictures import data_uri, draw_shape

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="no node"),
]
INSTALL_SECONDS = 120
HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside its packages."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(HERE / name, folder)
    _install(folder)
    return folder / "client.mjs"


def _install(folder: Path) -> None:
    """Get the packages, or skip the test where they cannot be got."""
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"npm ci got no packages within {INSTALL_SECONDS} s: is there a network?")
    if done.returncode:
        pytest.skip(f"npm ci cannot get the packages: {done.stderr[-500:]}")


def test_without_a_registry_the_test_is_skipped_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, tmp_path)
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    with pytest.raises(pytest.skip.Exception, match="npm ci"):
        _install(tmp_path)


def test_the_node_client_is_answered(client: Path, demo: Server, caller: Pupil) -> None:
    given = {
        "url": f"{demo.url}/v1",
        "model": demo.model,
        "picture": data_uri(draw_shape("red", "circle", (125, 101))),
        "other": data_uri(draw_shape("blue", "square", (103, 127))),
        "caller": {"url": f"{caller.server.url}/v1", "fields": caller.fields("two")},
    }
    done = subprocess.run(
        ["node", str(client), json.dumps(given)],
        cwd=client.parent,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "answer": "circle",
        "total": 0,
        "more_image_tokens": True,
        "streamed": "circle",
        "parsed": True,
        "response": "circle",
        "calls": ["look", "see"],
        "gathered": ["look", "see"],
        "not_found": "NotFoundError",
        "bad_request": "BadRequestError",
        "timeout": "APIConnectionTimeoutError",
    }
