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
HERE = Path(__file__).parent / "node"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script beside its packages."""
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "client.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        pytest.skip(f"npm ci failed: {done.stderr[-500:]}")
    return folder / "client.mjs"


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
