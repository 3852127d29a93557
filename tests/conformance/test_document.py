"""A running server is held to the document that it publishes."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.server import Server

pytestmark = pytest.mark.slow

SECONDS = 25


def test_whatever_is_sent_the_answer_is_one_that_the_document_has(
    demo: Server, tmp_path: Path
) -> None:
    """No 5xx, no undocumented status or body, nothing taken that the schemas forbid.

    That whatever fits the schemas is taken is not held to: rules between fields are in no schema.
    """
    tool = Path(sys.executable).with_name("schemathesis")
    wishes = ["--phases", "examples,coverage,fuzzing", "--max-time", str(SECONDS), "--seed", "1"]
    wishes += ["--exclude-checks", "positive_data_acceptance", "--request-timeout", "60"]
    done = subprocess.run(
        [str(tool), "run", f"{demo.url}/openapi.json", *wishes, "--warnings", "off"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SECONDS + 120,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
